#include "cli/serve/systemd_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/serve/supervise.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

// Environment variables that the service copies from this process: the folders of Weft and of the
// Hub.
constexpr const char* kVariables[] = {"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_HOME",
                                      "HF_HUB_CACHE",    "WEFT_DEVICE",    "WEFT_LOG_FORMAT"};

std::string Escaped(std::string_view text, bool of_command) {
    std::string escaped;
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') escaped += '\\';
        if (letter == '%' || (of_command && letter == '$')) escaped += letter;
        escaped += letter;
    }
    return "\"" + escaped + "\"";
}

Result<std::vector<std::string>> OwnWords() {
    WEFT_ASSIGN(std::vector<std::string> words, OwnCommandLine());
    std::error_code failed;
    words.at(0) = std::filesystem::read_symlink("/proc/self/exe", failed).string();
    std::erase(words, "--unit");
    const auto breaks = [](const std::string& word) {
        return std::ranges::any_of(word, [](char letter) { return letter >= 0 && letter < ' '; });
    };
    if (std::ranges::none_of(words, breaks)) return words;
    return MakeError(ErrorCode::kUnsupported,
                     "--unit: a word of the command line has a line break or another control "
                     "character, which a unit can't hold");
}

}  // namespace

std::string UnitText(std::string_view text) {
    std::string plain;
    for (const char letter : text) {
        if (letter == '%') plain += letter;
        plain += letter >= 0 && letter < ' ' ? '?' : letter;
    }
    return plain;
}

std::string UnitWords(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) {
        text += (text.empty() ? "" : " ") + Escaped(word, true);
    }
    return text;
}

Status PrintUserUnit(const UserUnit& unit) {
    WEFT_ASSIGN(const std::vector<std::string> words, OwnWords());
    std::error_code failed;
    const std::string folder = std::filesystem::current_path(failed).string();
    PrintOut("[Unit]\nDescription={}\n\n[Service]\n", UnitText(unit.description));
    if (!failed) PrintOut("WorkingDirectory={}\n", UnitText(folder));
    for (const char* name : kVariables) {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0') continue;
        PrintOut("Environment={}\n", Escaped(fmt::format("{}={}", name, value), false));
    }
    PrintOut("ExecStart={}\n", UnitWords(words));
    if (unit.reloads) PrintOut("ExecReload=/bin/kill -HUP $MAINPID\n");
    PrintOut(
        "Restart=on-failure\nRestartSec=5\nRestartPreventExitStatus=2\n"
        "# The main process passes the signal on.\n"
        "KillMode=mixed\nTimeoutStopSec={}\nLimitMEMLOCK=infinity\n\n"
        "[Install]\nWantedBy=default.target\n",
        unit.stop_seconds);
    FlushOut();
    PrintErr(
        "weft: to install this unit: mkdir -p ~/.config/systemd/user, write the text to "
        "~/.config/systemd/user/{0}.service, then\n    systemctl --user daemon-reload && systemctl "
        "--user enable --now {0}\nto run it without a login: sudo loginctl enable-linger\n",
        unit.name);
    return {};
}

}  // namespace weft::cli
