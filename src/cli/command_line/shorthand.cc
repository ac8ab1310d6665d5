#include "cli/command_line/shorthand.h"

namespace weft::cli {
namespace {

constexpr ImpliedCommand kImplied[] = {{"net", "table"}, {"train", "run"}, {"hosts", "list"}};

// Inserts the implied subcommand before flags other than -h, for commands whose own help lists all
// subcommands.
void ExpandFlags(const char* command, std::vector<std::string>& words) {
    if (words.empty() || words[0] != command) return;
    const bool flag = words.size() > 1 && words[1].starts_with("-");
    if (words.size() == 1 || (flag && words[1] != "-h" && words[1] != "--help")) {
        words.insert(words.begin() + 1, ImpliedBy(command));
    }
}

void ExpandTrain(std::vector<std::string>& words) {
    if (words.empty() || words[0] != "train") return;
    const std::string next = words.size() > 1 ? words[1] : "";
    if (next == "data" || next == "run" || next == "estimate") return;
    words.insert(words.begin() + 1, ImpliedBy("train"));
}

// `weft help run` is `weft run --help`; `weft version` is `weft --version`.
void ExpandWords(std::vector<std::string>& words) {
    if (words.empty()) return;
    if (words[0] == "version") words[0] = "--version";
    if (words[0] != "help") return;
    words.erase(words.begin());
    words.push_back("--help");
}

}  // namespace

std::span<const ImpliedCommand> ImpliedCommands() {
    return kImplied;
}

std::string ImpliedBy(const std::string& command) {
    for (const ImpliedCommand& row : kImplied) {
        if (row.command == command) return row.implied;
    }
    return {};
}

std::string TypedName(const std::string& full_name) {
    for (const ImpliedCommand& row : kImplied) {
        const std::string typed = std::string("weft ") + row.command;
        if (full_name == typed + " " + row.implied) return typed;
    }
    return full_name;
}

void ExpandShorthand(std::vector<std::string>& words) {
    ExpandWords(words);
    ExpandFlags("net", words);
    ExpandFlags("hosts", words);
    ExpandTrain(words);
}

}  // namespace weft::cli
