#!/usr/bin/env bash
# The steps of the action: `prepare` installs; `base` has the gate of the merge base judge, before anything of the pull
# request runs, with an exit code of its own; `judge` runs the pull request's gate and always leaves a summary; `apply`
# turns what came of that into an exit code, after the reports were uploaded. Everything comes through the environment
# (see action.yml).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${NSYS_PYTHON:-python3}

fail() { # MESSAGE: an annotation, escaped as GitHub wants it
    local text=${1//'%'/%25}
    text=${text//$'\r'/%0D}
    printf '::error title=nsys gate::%s\n' "${text//$'\n'/%0A}"
}

put() { # NAME VALUE: an output of the step; no value that is put here has a line break
    printf '%s=%s\n' "$1" "$2" >>"${GITHUB_OUTPUT:-/dev/null}"
}

lines() { # TEXT: its lines without blanks around them, each ended by NUL; empty lines are none
    local line
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line%$'\r'}
        line=${line#"${line%%[![:space:]]*}"}
        line=${line%"${line##*[![:space:]]}"}
        [ -z "$line" ] || printf '%s\0' "$line"
    done <<<"$1"
}

broken() { # MESSAGE: the gate did not come to judge; the summary says so and the run goes on to `apply`
    fail "$1"
    {
        printf '## Performance gate: error\n\nThe gate did not run:\n\n'
        printf '%s\n' "$1" | sed 's/^/    /'
        if [ -s "$out/pytest.log" ]; then
            printf '\nIts last words:\n\n'
            tail -n 40 "$out/pytest.log" | cut -c 1-500 | tr -d '\000-\010\013-\037\177' | sed 's/^/    /'
        fi
    } >"$out/summary.md"
}

gate_files() { # each gate file that is meant, ended by NUL
    local path
    local -a found
    while IFS= read -r -d '' path; do
        if [ -d "$path" ]; then
            mapfile -d '' -t found < <(under "$(rooted "$path")")
            if [ "${#found[@]}" -eq 0 ]; then
                printf 'no gate file (*.nsys.yaml) under %s\n' "$path" >&2
                return 1
            fi
            for path in "${found[@]}"; do
                if [[ $path == *'['* ]]; then
                    printf "pytest reads '[' in a path as the parameters of a test: rename %s\n" "$path" >&2
                    return 1
                fi
            done
            printf '%s\0' "${found[@]}"
        elif [ -f "$path" ]; then
            printf '%s\0' "$(rooted "$path")"
        else
            printf 'no such gate file or folder: %s\n' "$path" >&2
            return 1
        fi
    done < <(lines "${NSYS_GATE_FILES:-.}")
}

under() { # FOLDER: the gate files in it, but not in hidden folders or in virtual environments
    # As pytest finds them: links are followed, one that leads nowhere is an error, and so is a name that is nearly one.
    local meant='\.nsys\.ya?ml'
    LC_ALL=C find -L "$1" -mindepth 1 -regextype posix-extended -type d \( -name '.*' -o -name node_modules \
        -o -exec test -e '{}/pyvenv.cfg' \; \) -prune \
        -o -type f,l \( -name '*.nsys.yaml' -o -iregex ".*/[^/.#][^/]*$meant[^/]*" \
        ! -iregex ".*$meant([^/]*~|\.(j2|jinja2?|tmpl|tpl|template|in))" \) -print0 2>/dev/null | LC_ALL=C sort -z
}

rooted() { # PATH: the same path, never to be taken for an option
    case $1 in /* | ./* | .) printf '%s' "$1" ;; *) printf './%s' "$1" ;; esac
}

install() { # pytest-nsys in a virtual environment of its own; sets `python`. No file here stands for a module
    [ "${NSYS_INSTALL:-true}" = false ] && return
    local package=${NSYS_PACKAGE:-$here/../../..}
    (
        unset "${!PYTHON@}" # PYTHONPATH may name a folder of the branch; also for what pip starts
        "$python" -I -m venv "$work/venv" &&
            "$work/venv/bin/python" -I -m pip install --quiet --disable-pip-version-check -- "$package"
    ) && python=$work/venv/bin/python
}

prepare() {
    local why
    work=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/nsys-gate.XXXXXX")
    out=$work/reports
    mkdir "$out"
    put folder "$out"
    put json "$out/report.json"
    put summary "$out/summary.md"
    put junit "$out/junit.xml"
    put html "$out/report.html"
    if ! why=$("$python" -IS -c "" 2>&1); then
        broken "${why:-there is no Python: $python}"
    elif ! install >"$out/pytest.log" 2>&1; then
        broken "pytest-nsys could not be installed"
    else
        put python "$python"
    fi
}

base() {
    local -a words=("$NSYS_BASELINE_REF") paths=()
    local code=0
    out=$NSYS_FOLDER
    inputs --
    [ -z "${NSYS_HISTORY:-}" ] || words+=("--history=$NSYS_HISTORY")
    mapfile -d '' -t paths < <(lines "${NSYS_GATE_FILES:-.}")
    quietly "$python" -I -m pytest_nsys baseline judge "--summary=$out/base.md" "--json=$out/base.json" \
        "${words[@]}" -- "${paths[@]}" || code=$?
    put exit-code "$code"
    [ ! -s "$out/base.md" ] || cat "$out/base.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
    [ "$code" -eq 0 ] && return
    fail "the gate of the merge base is red: the log and the summary say why"
    exit 1
}

judge() {
    work=$NSYS_FOLDER/..
    out=$NSYS_FOLDER
    [ -z "${NSYS_PYTHON:-}" ] || run # else it is not installed
    put verdict "$(verdict)"
    cat "$out/summary.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
}

inputs() { # PREFIX: the options of what is judged; -- for pytest-nsys, --nsys- for pytest
    local value
    while IFS= read -r -d '' value; do words+=("$1trace=$value"); done < <(lines "${NSYS_TRACES:-}")
    while IFS= read -r -d '' value; do words+=("$1measurements=$value"); done < <(lines "${NSYS_MEASUREMENTS:-}")
    while IFS= read -r -d '' value; do words+=("$1against=$value"); done < <(lines "${NSYS_AGAINST:-}")
}

quietly() { # COMMAND…: names of files, tests and kernels are anybody's, so no line that it prints is a command
    local token code=0
    token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '::stop-commands::%s\n' "$token"
    "$@" 2>&1 || code=$?
    printf '::%s::\n' "$token"
    return "$code"
}

verdict() { # one word; without a report it is an error
    "$python" -IS "$here/outcome.py" verdict "$out/report.json" 2>/dev/null || printf 'error\n'
}

run() {
    local -a words=(--nsys-strict) files=() more=()
    local code=0 notes='^::\(error\|warning\|notice\) '
    if ! gate_files >"$work/files" 2>"$work/why"; then
        broken "gate-files: $(cat "$work/why")"
        return
    fi
    mapfile -d '' -t files <"$work/files"
    inputs --nsys-
    [ -z "${NSYS_HISTORY:-}" ] || words+=("--nsys-history=$NSYS_HISTORY")
    mapfile -d '' -t more < <(lines "${NSYS_ARGS:-}")
    # The repository's own addopts are for its own tests, whose plugins are not installed here.
    quietly logged -o addopts= -p no:cacheprovider "--junitxml=$out/junit.xml" \
        "--nsys-json=$out/report.json" "--nsys-summary=$out/summary.md" "--nsys-html=$out/report.html" --nsys-annotate \
        "${words[@]}" "${more[@]}" "${files[@]}" || code=$?
    sed -n "/$notes/p" "$out/pytest.log"
    put exit-code "$code"
    [ -s "$out/summary.md" ] || broken "pytest ended with exit status $code before anything was judged"
}

logged() { # WORDS…: pytest, whose annotations are printed where they count as such
    "$python" -P -m pytest "$@" 2>&1 | tee "$out/pytest.log" | sed -u "/$notes/d" || return "${PIPESTATUS[0]}"
}

apply() {
    if [ -z "${NSYS_EXIT_CODE:-}" ]; then
        fail "the gate did not run; the summary says why"
        exit 1
    fi
    "$python" -IS "$here/outcome.py" apply "$NSYS_EXIT_CODE" "$NSYS_JSON"
}

case ${1:-} in
prepare | base | judge | apply) "$1" ;;
*)
    echo "usage: gate.sh prepare|base|judge|apply" >&2
    exit 2
    ;;
esac
