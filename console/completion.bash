# Tab completion of `python starter.py ...` and `./starter.py ...` in bash, once a shell: source console/completion.bash
# In zsh the same, after: autoload -U bashcompinit && bashcompinit
_replan_completion() {
    local IFS=$'\n' skip=0
    [[ ${COMP_WORDS[0]} == *starter.py ]] || skip=1
    [[ ${COMP_WORDS[skip]} == *starter.py && $COMP_CWORD -gt $skip ]] || return 0
    COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]:skip}" COMP_CWORD=$((COMP_CWORD - skip)) _STARTER.PY_COMPLETE=complete_bash \
        "${COMP_WORDS[@]:0:skip+1}" 2>/dev/null))
}
complete -o default -F _replan_completion python python3 starter.py
