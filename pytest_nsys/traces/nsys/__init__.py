"""Exports of Nsight Systems, and its reports."""
