// weft: the command line. Subcommands parse flags and print; engine/ does the work.
#include <algorithm>
#include <csignal>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line/complete.h"
#include "cli/command_line/flags.h"
#include "cli/command_line/options.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

constexpr const char* kWeftFooter =
    "MODEL is a GGUF file, a Hugging Face folder, [hf:]OWNER/NAME[:TYPE] ('weft pull' downloads\n"
    "it), a short name (qwen3:8b) or synthetic:NAME[:dtype] (random weights of a known shape).\n"
    "Exit status: 0 done, 1 failed, 2 usage error, 3 a rank was lost, 75 training stopped with a\n"
    "checkpoint (--resume auto continues), 130 stopped by the user, 141 output pipe closed.\n\n"
    "Examples:\n"
    "  weft run model.gguf -p \"Name three colours.\" -n 32\n"
    "  weft run model.gguf --raw -p \"Once upon a time\" --local 2\n"
    "  weft serve model.gguf --local 2\n"
    "  weft bench synthetic:llama-3.2-1b --tp 1,2 -p 512 -n 64 -t 1\n"
    "  weft quantize model-f16.gguf model-q4.gguf Q4_K_M\n"
    "  weft net allreduce --local 2\n"
    "  weft plan gpt-oss-120b --machines 4xstrix-halo,roce\n"
    "  weft doctor";

// Overwrites the words of `weft up` (also while a shell completes them), because every user of the
// host can read /proc/PID/cmdline. Lengths stay the same.
void HideSecrets(std::span<char* const> arguments) {
    const auto is_flag = [](std::string_view word) { return word.size() > 1 && word[0] == '-'; };
    const auto command = std::ranges::find_if_not(arguments, is_flag);
    const std::string_view name = command == arguments.end() ? "" : *command;
    if (name != "up" && name != "completion") return;
    bool only_words = false;  // after "--"
    std::string_view before;  // the flag whose value is next
    for (auto each = arguments.begin(); each != arguments.end(); ++each) {
        const std::string_view word = *each;
        if (!only_words && is_flag(word)) {
            only_words = word == "--";
            before = only_words || word.find('=') != word.npos ? "" : word;
            continue;
        }
        if (each > command && before.empty() && word != "-") {
            std::fill_n(*each, word.size(), 'x');
        }
        before = "";
    }
}

// Answers the completion scripts, which run `weft completion -- WORDS` at each key press. No
// invalid file or variable may prevent the answer.
bool AnswersItself(const Parser& parser, const std::vector<std::string>& words) {
    if (words.size() < 2 || words[0] != "completion" || words[1] != "--") return false;
    PrintCompletion(Complete(parser.Describe(), {words.begin() + 2, words.end()}));
    return true;
}

int RunCommand(std::vector<std::string> words) {
    Parser parser("Weft runs a large language model across several ordinary machines.", "weft");
    const Command app = parser.root();
    int status = 0;
    bool version = false, json = false;
    app.AddFlag("--version", version,
                "Print the version, the built-in features and the CPU's kernels");
    app.AddFlag("--json", json, "With --version: print JSON");
    app.Footer(kWeftFooter);
    AddCommands(parser, status);
    if (AnswersItself(parser, words)) return 0;
    TypedLine typed{words, {}};
    const Status expanded = ExpandLine(parser, words, typed.translated);
    const bool wants_json = HasFlag(parser.Describe(), words, "--json");
    if (!expanded.ok()) return Fail(expanded.error(), wants_json);
    try {
        const Result<Parser::Outcome> parsed = parser.Parse(words, typed);
        if (!parsed.ok()) {
            if (IsFollower()) return LeaveToRankZero(ErrorCode::kUsage);
            return Fail(parsed.error(), wants_json);
        }
        if (*parsed == Parser::Outcome::kHelpShown) return 0;
        if (version) {
            PrintVersion(json);
        } else if (*parsed == Parser::Outcome::kNoCommand) {
            return Fail(MakeError(ErrorCode::kUsage,
                                  "a command is missing. 'weft --help' lists the commands."),
                        wants_json);
        }
    } catch (const std::bad_alloc&) {
        return Fail(MakeError(ErrorCode::kOutOfMemory,
                              "out of memory: check 'ulimit -d -v' and the container's limits, or "
                              "use more ranks"),
                    wants_json);
    }
    return status;
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    weft::cli::HideSecrets(std::span(argv, static_cast<size_t>(argc)).subspan(1));
    weft::cli::OpenStandardStreams();
    // A parent that ignores SIGCHLD passes this on, and then the status of each child is lost.
    std::signal(SIGCHLD, SIG_DFL);
    // A write beyond the limit of file sizes then fails, and the error names the limit.
    std::signal(SIGXFSZ, SIG_IGN);
    return weft::cli::FinishOutput(weft::cli::RunCommand(std::move(words)));
}
