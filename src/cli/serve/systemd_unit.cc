#include "cli/serve/systemd_unit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

// Environment variables that the service needs, too: the beginnings of their names.
constexpr std::string_view kVariables[] = {"WEFT_",
                                           "HF_",
                                           "XDG_CONFIG_HOME=",
                                           "XDG_CACHE_HOME=",
                                           "XDG_STATE_HOME=",
                                           "CUDA_",
                                           "HIP_",
                                           "ROCR_",
                                           "HSA_",
                                           "VK_",
                                           "LD_LIBRARY_PATH=",
                                           "http_proxy=",
                                           "https_proxy=",
                                           "HTTPS_PROXY=",
                                           "all_proxy=",
                                           "ALL_PROXY=",
                                           "no_proxy=",
                                           "NO_PROXY=",
                                           "SSL_CERT_FILE=",
                                           "CURL_CA_BUNDLE=",
                                           "TMPDIR="};
// Variables of the process and its launcher, and secrets: other users may read a unit.
constexpr std::string_view kOthers[] = {"WEFT_SUPERVISOR=", "WEFT_POOL_MEMBER=", "WEFT_LAUNCHER=",
                                        "WEFT_RESTART=",    "WEFT_JOB=",         "HF_TOKEN="};

bool HasBreak(std::string_view word) {
    return std::ranges::any_of(word, [](char letter) { return letter >= 0 && letter < ' '; });
}

// Whether a URL has a user's name or password: "https://a:b@host", and of a proxy also "a:b@host".
bool HasPassword(std::string_view variable) {
    const std::string name = LowerCase(variable.substr(0, variable.find('=')));
    const size_t begin = name.ends_with("_proxy") ? name.size() : variable.find("://");
    return begin < variable.rfind('@') && variable.rfind('@') != variable.npos;
}

// NAME=VALUE of the environment. secrets: receives the names of variables with a password.
std::vector<std::string> Variables(std::vector<std::string>& secrets) {
    std::vector<std::string> variables;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string_view variable = *each;
        const auto begins = [&](std::string_view name) { return variable.starts_with(name); };
        if (std::ranges::none_of(kVariables, begins) || std::ranges::any_of(kOthers, begins)) {
            continue;
        }
        if (variable.ends_with('=') || HasBreak(variable)) continue;
        if (HasPassword(variable)) {
            secrets.emplace_back(variable.substr(0, variable.find('=')));
            continue;
        }
        variables.emplace_back(variable);
    }
    std::ranges::sort(variables);
    return variables;
}

std::string Escaped(std::string_view text, bool of_command) {
    std::string escaped;
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') escaped += '\\';
        if (letter == '%' || (of_command && letter == '$')) escaped += letter;
        escaped += letter;
    }
    return "\"" + escaped + "\"";
}

// The command line of the service.
Result<std::vector<std::string>> ServiceWords(std::vector<std::string> words) {
    std::error_code failed;
    words.at(0) = std::filesystem::read_symlink("/proc/self/exe", failed).string();
    std::erase(words, "--unit");
    if (std::ranges::none_of(words, HasBreak)) return words;
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
    WEFT_ASSIGN(const std::vector<std::string> words, ServiceWords(unit.words));
    std::error_code failed;
    const std::string folder = std::filesystem::current_path(failed).string();
    PrintOut("[Unit]\nDescription={}\n\n[Service]\n", UnitText(unit.description));
    if (!failed) PrintOut("WorkingDirectory={}\n", UnitText(folder));
    std::vector<std::string> secrets;
    for (const std::string& variable : Variables(secrets)) {
        PrintOut("Environment={}\n", Escaped(variable, false));
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
    if (std::getenv("HF_TOKEN") != nullptr) {
        PrintErr(
            "weft: the unit has no HF_TOKEN, because others may read a unit: 'hf auth login' keeps "
            "the token in a file of this user\n");
    }
    for (const std::string& name : secrets) {
        PrintErr(
            "weft: the unit has no {}, because it holds a password and others may read a unit\n",
            name);
    }
    PrintErr(
        "weft: to install this unit: mkdir -p ~/.config/systemd/user, write the text to "
        "~/.config/systemd/user/{0}.service, then\n    systemctl --user daemon-reload && systemctl "
        "--user enable --now {0}\nto run it without a login: sudo loginctl enable-linger\n",
        unit.name);
    return {};
}

}  // namespace weft::cli
