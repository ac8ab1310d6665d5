#include "cli/program.h"

#include <algorithm>
#include <set>

#include "cli/command_line/config.h"
#include "cli/command_line/habits.h"
#include "cli/command_line/shorthand.h"
#include "cli/commands.h"
#include "hw/environment.h"

namespace weft::cli {
namespace {

// The subcommands in the order of --help.
constexpr void (*kAddCommands[])(const Command&, int&) = {
    AddRun,     AddServe,    AddBench,  AddBenchServe, AddLogits,    AddPerplexity, AddTokenize,
    AddInspect, AddQuantize, AddMerge,  AddModels,     AddNet,       AddPull,       AddListCommand,
    AddShow,    AddRm,       AddWorker, AddUp,         AddHosts,     AddDoctor,     AddKey,
    AddPlan,    AddTrain,    AddSubmit, AddJob,        AddCompletion};

// Replaces `--output_dir` by `--output-dir`, and so on for every known flag.
void UnifyNames(const std::set<std::string>& names, std::vector<std::string>& words) {
    for (std::string& word : words) {
        if (word == "--") break;
        if (!word.starts_with("--")) continue;
        const size_t end = std::min(word.find('='), word.size());
        std::string name = word.substr(2, end - 2);
        if (name.find('_') == name.npos || names.contains(name)) continue;
        std::ranges::replace(name, '_', '-');
        if (names.contains(name)) word = "--" + name + word.substr(end);
    }
}

}  // namespace

void AddCommands(const Parser& parser, int& status) {
    for (const auto add : kAddCommands) add(parser.root(), status);
    AddMan(parser.root(), parser, status);
}

Status ExpandLine(const Parser& parser, std::vector<std::string>& words,
                  std::map<std::string, std::string>& translated) {
    const DescribedCommand program = parser.Describe();
    WEFT_TRY(TranslateCommand(program, words));
    ExpandShorthand(words);
    const std::set<std::string> names = parser.FlagNames();
    UnifyNames(names, words);
    WEFT_TRY(ApplyHabits(program, words, translated));
    WEFT_TRY(CheckEnvironment());
    WEFT_TRY(ExpandConfig(program, words));
    UnifyNames(names, words);
    return {};
}

Status CheckForeignLine(std::vector<std::string> words) {
    const auto is_of_config = [](const std::string& word) {
        return word == "--config" || word.starts_with("--config=");
    };
    if (std::ranges::any_of(words, is_of_config)) return {};
    Parser parser("", "weft");
    int status = 0;
    AddCommands(parser, status);
    TypedLine typed{words, {}};
    WEFT_TRY(ExpandLine(parser, words, typed.translated));
    return parser.Check(std::move(words), typed);
}

}  // namespace weft::cli
