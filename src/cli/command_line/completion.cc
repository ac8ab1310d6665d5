// weft completion: prints a shell's completion script for weft. The scripts contain no flags: at
// each key press they run `weft completion -- WORDS` (complete.h).
#include "cli/commands.h"

namespace weft::cli {
namespace {

constexpr const char* kCompletionFooter =
    "Packages of Weft install these scripts. To load one into the running shell:\n\n"
    "Examples:\n"
    "  source <(weft completion bash)\n"
    "  source <(weft completion zsh)            (after: autoload -U compinit; compinit)\n"
    "  weft completion fish > ~/.config/fish/completions/weft.fish";

// bash splits words at '=' and ':'. The script joins them again, and removes the part before the
// last split from each answer.
constexpr const char* kBash =
    R"script(# Completion of weft for bash. Made by 'weft completion bash'.
_weft() {
    local rest=${COMP_LINE:0:COMP_POINT} words=() i word last= lead line kind
    for ((i = 0; i <= COMP_CWORD; ++i)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $rest == [[:blank:]]* ]]; then
            rest=${rest#"${rest%%[![:blank:]]*}"}
            words+=("")
        fi
        ((i < COMP_CWORD)) || word=${rest:0:${#word}}
        words[${#words[@]} - 1]+=$word
        rest=${rest#"$word"}
        last=$word
    done
    [[ $last != [=:] ]] || last=
    word=${words[${#words[@]} - 1]}
    lead=${word%"$last"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :none | :files | :folders) kind=$line ;;
            *)
                line=${line%%$'\t'*}
                line=${line#"$lead"}
                COMPREPLY+=("$(printf %q "$line")")
                ;;
        esac
    done < <("${words[0]/#\~\//$HOME/}" completion -- "${words[@]:1}" 2>/dev/null)
    case ${kind:-:none} in
        :files) compopt -o default ;;
        :folders) compopt -o dirnames ;;
    esac
}
complete -F _weft weft
)script";

constexpr const char* kZsh = R"script(#compdef weft
# Completion of weft for zsh. Made by 'weft completion zsh'.
_weft() {
    local -a lines words_only described
    local line kind=:none
    lines=("${(@f)$(${(Q)words[1]/#\~\//$HOME/} completion -- \
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in $lines; do
        case $line in
            :none|:files|:folders) kind=$line ;;
            *)
                words_only+=("${line%%$'\t'*}")
                if [[ -n ${line#*$'\t'} ]]; then
                    described+=("${line%%$'\t'*}  -- ${line#*$'\t'}")
                else
                    described+=("${line%%$'\t'*}")
                fi
                ;;
        esac
    done
    if (( $#words_only )); then
        compadd -l -d described -a words_only
    fi
    if [[ $kind != :none ]]; then
        compset -P '-*='
        if [[ $kind == :folders ]]; then _files -/; else _files; fi
    fi
}
if [[ $funcstack[1] == _weft ]]; then
    _weft "$@"
else
    compdef _weft weft
fi
)script";

constexpr const char* kFish =
    R"script(# Completion of weft for fish. Made by 'weft completion fish'.
function __weft_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l kind :none
    for line in (command $words[1] completion -- $words[2..-1] "$word" 2>/dev/null)
        switch $line
            case :none :files :folders
                set kind $line
            case '*'
                echo $line
        end
    end
    set -l lead (string match -r -- '^-[^=]*=' $word; or echo)
    set -l path (string replace -r -- '^-[^=]*=' '' $word)
    switch $kind
        case :files
            for found in (__fish_complete_path "$path")
                echo $lead$found
            end
        case :folders
            for found in (__fish_complete_directories "$path" '')
                echo $lead$found
            end
    end
end
complete -c weft -f -a '(__weft_complete)'
)script";

}  // namespace

void AddCompletion(const Command& app, int& status) {
    struct Flags {
        std::string shell;
        bool json = false;
    };
    const auto flags = std::make_shared<Flags>();
    const Command command =
        app.AddCommand("completion", "Print command completion for a shell", kCompletionFooter);
    command
        .AddChoice("SHELL", flags->shell, {"bash", "zsh", "fish"},
                   "Shell whose completion script to print: bash, zsh or fish")
        .Required();
    SetCallback(command, flags, flags->json, status, [](const Flags& asked) -> Status {
        WriteOut(asked.shell == "bash" ? kBash : asked.shell == "zsh" ? kZsh : kFish);
        return {};
    });
}

}  // namespace weft::cli
