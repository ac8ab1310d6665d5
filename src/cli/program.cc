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
    AddRun,      AddServe,  AddBench,  AddLogits,    AddPerplexity, AddTokenize,    AddInspect,
    AddQuantize, AddMerge,  AddModels, AddNet,       AddPull,       AddListCommand, AddShow,
    AddRm,       AddWorker, AddUp,     AddHosts,     AddDoctor,     AddKey,         AddPlan,
    AddTrain,    AddSubmit, AddJob,    AddCompletion};

// Replaces `--output_dir` by `--output-dir`, and so on for every known flag.
void UnifyNames(const DescribedCommand& program, const std::set<std::string>& names,
                std::vector<std::string>& words) {
    const std::vector<WordKind> kinds = KindsOf(program, words);
    for (size_t i = 0; i < words.size(); ++i) {
        std::string& word = words[i];
        if (kinds[i] != WordKind::kFlag || !word.starts_with("--")) continue;
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

namespace {

// Replaces the names of commands and flags by Weft's own full ones.
Status TranslateLine(const Parser& parser, const DescribedCommand& program,
                     std::vector<std::string>& words,
                     std::map<std::string, std::string>& translated) {
    WEFT_TRY(TranslateCommand(program, words));
    ExpandShorthand(words);
    WEFT_TRY(ApplyHabits(program, words, translated));
    UnifyNames(program, parser.FlagNames(), words);
    return {};
}

}  // namespace

Status ExpandLine(const Parser& parser, std::vector<std::string>& words,
                  std::map<std::string, std::string>& translated) {
    const DescribedCommand program = parser.Describe();
    WEFT_TRY(TranslateLine(parser, program, words, translated));
    WEFT_TRY(CheckEnvironment());
    WEFT_TRY(ExpandConfig(program, words));
    UnifyNames(program, parser.FlagNames(), words);
    return {};
}

Result<ForeignLine> ReadForeignLine(std::vector<std::string> words) {
    Parser parser("", "weft");
    int status = 0;
    AddCommands(parser, status);
    const DescribedCommand program = parser.Describe();
    TypedLine typed{words, {}};
    WEFT_TRY(TranslateCommand(program, words));
    ForeignLine line{words.at(0), {}};
    WEFT_TRY(TranslateLine(parser, program, words, typed.translated));
    line.flags = FlagsOf(program, words);
    if (HasFlag(program, words, "--config")) return line;
    WEFT_TRY(CheckEnvironment());
    WEFT_TRY(parser.Check(std::move(words), typed));
    return line;
}

}  // namespace weft::cli
