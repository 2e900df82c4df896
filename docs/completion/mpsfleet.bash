# Completion of mpsfleet's commands for bash. Written by ./dev docs from the program's own parsers.
# Install it as /usr/share/bash-completion/completions/mpsfleet, or source it.

_mpsfleet_words() {
    case "$1" in
        "") echo "node slurm sim explain --version --root --help" ;;
        "node") echo "audit apply remove reset quiesce unquiesce acknowledge prepare" ;;
        "slurm") echo "nodes drain undrain verdict history drift lint" ;;
        "sim") echo "up down break mend faults status inventory exec" ;;
        "node audit") echo "--json --nagios --config --record --record-names --replay --help" ;;
        "node apply") echo "--dry-run --json --config --help" ;;
        "node remove") echo "--dry-run --json --any-drain --help" ;;
        "node reset") echo "--dry-run --json --any-drain --gpu --others --unattended --help" ;;
        "node quiesce") echo "--dry-run --json --any-drain --help" ;;
        "node unquiesce") echo "--dry-run --json --help" ;;
        "node acknowledge") echo "--dry-run --json --help" ;;
        "node prepare") echo "--dry-run --json --help" ;;
        "slurm nodes") echo "--json --help" ;;
        "slurm drain") echo "--json --code --gpu --wait --ledger --cluster --dry-run --help" ;;
        "slurm undrain") echo "--json --ledger --cluster --dry-run --help" ;;
        "slurm verdict") echo "--json --reports --published --trigger-drain --trigger-undrain --drain-after --undrain-after --strikes --max-drained --max-drained-partition --max-drained-hour --ledger --cluster --dry-run --help" ;;
        "slurm history") echo "--json --ledger --help" ;;
        "slurm drift") echo "--json --reports --cluster --help" ;;
        "slurm lint") echo "--json --slurm-conf --gres-conf --node --gpus-json --pipe-directory --multi-user --want --shares --shared --help" ;;
        "sim up") echo "--version --gpus --dir --terse --help" ;;
        "sim down") echo "--help" ;;
        "sim break") echo "--gpu --help" ;;
        "sim mend") echo "--help" ;;
        "sim faults") echo "--help" ;;
        "sim status") echo "--help" ;;
        "sim inventory") echo "--path --help" ;;
        "sim exec") echo "--user --help" ;;
        "explain") echo "--help daemon-absent daemon-wedged daemon-busy daemon-unreachable daemon-unreachable-by-users daemon-duplicate daemon-starting daemon-foreign daemon-outdated daemon-environment daemon-zombie daemon-wrong-user daemon-log-stopped lock-replaced lock-held socket-hijacked server-fault server-recovered server-orphaned server-not-ready server-crash-loop server-dead client-waiting client-without-job client-limit-near job-bypasses-mps directory-missing log-directory-missing directory-owner directory-mode directory-parent directory-hijacked directory-hidden directory-on-network directory-unwritable directory-unprotected unit-missing unit-masked unit-disabled unit-skipped unit-failed unit-start-limit deployment-differs hooks-missing percentage-tampered percentage-differs memory-limit-differs memory-limit-unsupported priority-differs daemon-wrong-gpus default-directory-squatted mps-package-missing gpu-lost gpu-requires-reset gpu-missing gpus-unrecorded gpu-changed gpu-unmatched gpu-mig compute-mode-differs compute-mode-prohibited compute-mode-exclusive gpu-error gpu-unasked gpu-ecc gpu-ecc-contained gpu-inforom gpu-xid gpu-xid-logged driver-mismatch driver-not-loaded nvidia-smi-wedged nvidia-smi-slow nvidia-smi-missing nvidia-smi-failed quiesced configuration-invalid probe-failed reset" ;;
        "--version") echo "--json --help" ;;
    esac
}

_mpsfleet_values() {
    case "$1" in
        "node audit --config") echo "-" ;;
        "node audit --record") echo "FILE" ;;
        "node audit --replay") echo "FILE" ;;
        "node apply --config") echo "-" ;;
        "slurm drain --code") echo "compute-mode-prohibited daemon-absent daemon-unreachable daemon-unreachable-by-users daemon-wedged daemon-wrong-gpus directory-missing driver-mismatch driver-not-loaded flapping gpu-ecc gpu-error gpu-lost gpu-missing gpu-requires-reset gpu-xid mps-package-missing nvidia-smi-wedged reset" ;;
        "slurm drain --ledger") echo "FILE" ;;
        "slurm undrain --ledger") echo "FILE" ;;
        "slurm verdict --reports") echo "FILE" ;;
        "slurm verdict --ledger") echo "FILE" ;;
        "slurm history --ledger") echo "FILE" ;;
        "slurm drift --reports") echo "FILE" ;;
        "slurm lint --slurm-conf") echo "FILE" ;;
        "slurm lint --gres-conf") echo "FILE" ;;
        "slurm lint --gpus-json") echo "FILE" ;;
        "slurm lint --pipe-directory") echo "FILE" ;;
        "slurm lint --want") echo "mps shard none" ;;
        "sim up --dir") echo "FILE" ;;
    esac
}

_mpsfleet() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" start=1 path=""
    COMPREPLY=()
    if [[ "${COMP_WORDS[1]}" == "--root" ]]; then
        start=3
        if ((COMP_CWORD == 2)); then
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            return
        fi
    fi
    if ((COMP_CWORD > start)); then path="${COMP_WORDS[start]}"; fi
    if ((COMP_CWORD > start + 1)) && [[ "$path" =~ ^(node|slurm|sim)$ ]]; then path+=" ${COMP_WORDS[start + 1]}"; fi
    local words
    words="$(_mpsfleet_values "$path $previous")"
    if [[ "$words" == "FILE" ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    fi
    if [[ -z "$words" ]]; then words="$(_mpsfleet_words "$path")"; fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o filenames -F _mpsfleet mpsfleet
