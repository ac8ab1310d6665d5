#include "cli/command_line/man.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <sstream>

#include "base/file.h"
#include "base/nearest_word.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command_line/shorthand.h"
#include "cli/commands.h"
#include "cluster/join/build.h"

namespace weft::cli {
namespace {

constexpr const char* kManFooter =
    "Packages of Weft install these pages: man weft, man weft-train.\n\n"
    "Examples:\n"
    "  weft man | man -l -\n"
    "  weft man train data | man -l -\n"
    "  weft man --all ~/.local/share/man/man1";

struct ManFlags {
    std::vector<std::string> command;
    std::string all;
    bool json = false;
};

// Text that roff prints literally at any position. breaks: long words may break after a comma.
std::string Roff(const std::string& text, bool breaks = false) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const size_t bytes = std::max<size_t>(1, CodePointLength(text, i));
        const uint32_t code = CodePointOf(std::string_view(text).substr(i, bytes));
        i += bytes;
        switch (code) {
            case '\\': out += "\\e"; break;
            case '-': out += "\\-"; break;
            case '\'': out += "\\(aq"; break;
            case '`': out += "\\(ga"; break;
            case '^': out += "\\(ha"; break;
            case '~': out += "\\(ti"; break;
            case '"': out += "\\(dq"; break;
            case '.': out += out.empty() || out.back() == '\n' ? "\\&." : "."; break;
            case ',': out += breaks && i < text.size() && text[i] != ' ' ? ",\\:" : ","; break;
            default:
                if (code < 0x80) {
                    out += static_cast<char>(code);
                } else {
                    out += fmt::format("\\[u{:04X}]", code);
                }
        }
    }
    return out;
}

std::string Bold(const std::string& text) {
    return "\\fB" + Roff(text) + "\\fR";
}

std::string Italic(const std::string& text) {
    return "\\fI" + Roff(text, true) + "\\fR";
}

// The name of the value: "TEXT:{a,b}" gives {a,b}; "INT:0..3" gives INT.
std::string ValueName(const DescribedFlag& flag) {
    if (flag.value.find('{') != std::string::npos)
        return fmt::format("{}", fmt::join(flag.words, "|"));
    return flag.value.substr(0, flag.value.find(':'));
}

std::string FlagPage(const DescribedFlag& flag) {
    std::string text = ".TP\n";
    if (flag.positional) {
        text += Italic(flag.names[0]);
        if (flag.many) text += " ...";
    } else {
        for (const std::string& name : flag.names) {
            if (name != flag.names.front()) text += ", ";
            text += Bold(name);
        }
        if (flag.kind != ValueKind::kNone) text += " " + Italic(ValueName(flag));
    }
    text += "\n" + Roff(flag.help.empty() ? "See " + flag.names[0] : flag.help, true);
    if (!flag.accepted.empty()) text += Roff(fmt::format(". Accepts {}", flag.accepted), true);
    if (!flag.by_default.empty()) text += Roff(fmt::format(" [{}]", flag.by_default), true);
    return text + "\n";
}

// The positional values of the command: "MODEL [FILE ...]".
std::string Values(const DescribedCommand& command) {
    std::string text;
    for (const DescribedFlag& flag : command.flags) {
        if (!flag.positional) continue;
        const std::string name = Italic(flag.names[0]) + (flag.many ? " ..." : "");
        text += flag.required ? " " + name : " [" + name + "]";
    }
    return text;
}

std::string Flags(const DescribedCommand& command) {
    std::vector<std::string> order;
    std::map<std::string, std::string> groups;
    for (const DescribedFlag& flag : command.flags) {
        const std::string group = flag.positional ? "Arguments" : flag.group;
        if (!groups.contains(group)) order.push_back(group);
        groups[group] += FlagPage(flag);
    }
    std::string text;
    const auto arguments = std::ranges::find(order, "Arguments");
    if (arguments != order.end()) std::rotate(order.begin(), arguments, arguments + 1);
    for (const std::string& group : order) {
        const bool usual = group == "Options" || group == "Arguments";
        const std::string heading = UpperCase(group);
        text += fmt::format("{} \"{}\"\n{}", ".SH", Roff(usual ? heading : "OPTIONS: " + heading),
                            groups[group]);
    }
    return text;
}

// Formats a footer: paragraphs unchanged, and the lines below "Examples:" last.
std::string Footer(const std::string& footer) {
    if (footer.find_first_not_of(" \n") == std::string::npos) return {};
    std::string notes, examples;
    bool in_examples = false;
    std::istringstream lines(footer);
    for (std::string line; std::getline(lines, line);) {
        if (line == "Examples:") {
            in_examples = true;
            continue;
        }
        (in_examples ? examples : notes) += Roff(line) + "\n";
    }
    const auto section = [](const char* name, std::string text) {
        while (text.ends_with("\n\n")) text.pop_back();
        return text.find_first_not_of('\n') == text.npos
                   ? std::string()
                   : fmt::format(".SH {}\n.nf\n{}.fi\n", name, text);
    };
    return section("NOTES", notes) + section("EXAMPLES", examples);
}

// The command line of a page: "weft train run".
std::string Typed(const std::string& page) {
    std::string typed = page;
    std::ranges::replace(typed, '-', ' ');
    return typed;
}

std::string CommandList(const DescribedCommand& command, const std::string& page,
                        const std::string& implied) {
    std::string text;
    for (const DescribedCommand& below : command.commands) {
        if (below.name == implied) continue;
        text += fmt::format(".TP\n{}(1)\n{}\n", Bold(page + "-" + below.name), Roff(below.about));
    }
    return text.empty() ? text : ".SH COMMANDS\n" + text;
}

constexpr const char* kStatus =
    ".SH EXIT STATUS\n"
    "0 done, 1 failed, 2 bad usage, 3 a rank was lost, 75 training stopped with a checkpoint, 130 "
    "stopped by the user, 141 output pipe closed.\n";

ManPage PageOf(const DescribedCommand& command, const std::string& name) {
    const std::string implied_name = name == "weft" ? "" : ImpliedBy(command.name);
    const DescribedCommand* implied = command.Find(implied_name);
    const DescribedCommand& what = implied == nullptr ? command : *implied;
    std::string text = fmt::format(
        ".\\\" Made by 'weft man' of the flags of weft {}.\n.TH {} 1 \"{}\" \"weft {}\" \"User "
        "Commands\"\n.ad l\n.nh\n",
        WEFT_VERSION, Roff(UpperCase(name)), cluster::CommitDate(), WEFT_VERSION);
    std::string about = implied == nullptr ? command.about : what.about;
    while (about.ends_with('.')) about.pop_back();
    text += fmt::format(".SH NAME\n{} \\- {}\n", Roff(name), Roff(about));
    text += fmt::format(".SH SYNOPSIS\n{} [{} ...]{}\n", Bold(Typed(name)), Italic("FLAG"),
                        Values(what));
    if (!command.commands.empty()) {
        text += fmt::format(".br\n{} {} [...]\n", Bold(Typed(name)), Italic("COMMAND"));
    }
    text += Flags(what) + CommandList(command, name, implied_name) + Footer(what.footer) + kStatus;
    text += name == "weft" ? ".SH SEE ALSO\nDocumentation: the folder doc/weft of the "
                             "installation.\n"
                           : ".SH SEE ALSO\n" + Bold("weft") + "(1)\n";
    return {name, text};
}

void AddPages(const DescribedCommand& command, const std::string& name,
              std::vector<ManPage>& pages) {
    pages.push_back(PageOf(command, name));
    for (const DescribedCommand& below : command.commands) {
        if (name != "weft" && below.name == ImpliedBy(command.name)) continue;
        AddPages(below, name + "-" + below.name, pages);
    }
}

Status WritePages(const std::vector<ManPage>& pages, const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        return MakeError(ErrorCode::kIo, "cannot make the folder {}: {}", folder, failed.message());
    }
    for (const ManPage& page : pages) {
        const std::string path = fmt::format("{}/{}.1", folder, page.name);
        WEFT_TRY(WriteFile(path, std::as_bytes(std::span(page.text))));
    }
    return {};
}

Status RunMan(const Parser& parser, const ManFlags& flags) {
    const std::vector<ManPage> pages = ManPages(parser.Describe());
    if (!flags.all.empty()) return WritePages(pages, flags.all);
    std::string name = "weft";
    for (const std::string& word : flags.command) name += "-" + word;
    // `weft train run` is on the page of `weft train`.
    for (const ImpliedCommand& row : ImpliedCommands()) {
        if (name == fmt::format("weft-{}-{}", row.command, row.implied)) {
            name = fmt::format("weft-{}", row.command);
        }
    }
    const auto page = std::ranges::find(pages, name, &ManPage::name);
    if (page != pages.end()) {
        WriteOut(page->text);
        return {};
    }
    std::vector<std::string> names;
    for (const ManPage& each : pages) names.push_back(Typed(each.name));
    return MakeError(ErrorCode::kUsage, "there is no command '{}'.{} 'weft --help' lists them.",
                     fmt::format("weft {}", fmt::join(flags.command, " ")),
                     DidYouMean(Typed(name), names));
}

}  // namespace

std::vector<ManPage> ManPages(const DescribedCommand& program) {
    std::vector<ManPage> pages;
    AddPages(program, "weft", pages);
    return pages;
}

void AddMan(const Command& app, const Parser& parser, int& status) {
    const auto flags = std::make_shared<ManFlags>();
    const Command command =
        app.AddCommand("man", "Print the manual page of a command as roff", kManFooter);
    command.AddOption("COMMAND", flags->command,
                      "Command to describe, such as train data (default: weft itself)");
    command.AddOption("--all DIR", flags->all,
                      "Write the manual pages of all commands into this folder");
    SetCallback(command, flags, flags->json, status,
                [&parser](const ManFlags& asked) { return RunMan(parser, asked); });
}

}  // namespace weft::cli
