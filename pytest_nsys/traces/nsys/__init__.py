"""How are exports of Nsight Systems, and its reports, read?"""
