# Tab completion of `replan ...` and `python starter.py ...` in bash, once a shell: source <(replan --show-completion)
# In zsh the same, after: autoload -U bashcompinit && bashcompinit
_replan_completion() {
    local IFS=$'\n' skip=0
    [[ ${COMP_WORDS[0]} == *python* ]] && skip=1
    [[ ${COMP_WORDS[skip]##*/} =~ ^(replan|starter.py)$ && $COMP_CWORD -gt $skip ]] || return 0
    COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]:skip}" COMP_CWORD=$((COMP_CWORD - skip)) _REPLAN_COMPLETE=complete_bash \
        "${COMP_WORDS[@]:0:skip+1}" 2>/dev/null))
}
complete -o default -F _replan_completion python python3 starter.py replan
