# Tab completion of `replan ...` and `starter.py ...` in bash, once a shell: source <(replan --show-completion)
# In zsh the same, after: autoload -U bashcompinit && bashcompinit
_replan_completion() {
    local IFS=$'\n'
    COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" _REPLAN_COMPLETE=complete_bash \
        "${COMP_WORDS[0]}" 2>/dev/null))
}
complete -o default -F _replan_completion replan starter.py
