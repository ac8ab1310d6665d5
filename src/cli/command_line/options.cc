#include "cli/command_line/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <type_traits>
#include <utility>

#include "base/nearest_word.h"
#include "cli/command_line/shorthand.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

// Prefixes of the names of checks. The rest of the name describes the values.
constexpr std::string_view kSuggest = "suggest:";  // words for completion; nothing is rejected
constexpr std::string_view kAccept = "accept:";    // the accepted values: "1 to 8"

constexpr const char* kSizes = "a size, as 4096, 16KB or 2MB";
constexpr const char* kTokens = "tokens, as 4096, 8k or auto";

// Parser::Check: where to put what the command's check finds; null: commands act.
thread_local Status* check_of_line = nullptr;

// CLI11 reports invalid values as exceptions; Parse converts them to errors.
void Throw(const std::string& flag, const std::string& wrong) {
    if (!wrong.empty()) throw CLI::ValidationError(flag, wrong);
}

void CollectNames(const CLI::App& app, std::set<std::string>& names) {
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.insert(name);
    }
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        CollectNames(*command, names);
    }
}

// The rest of the first name with the prefix among the option's checks; "": none.
std::string Described(const CLI::Option& option, std::string_view prefix) {
    // (CLI11 returns checks only for non-const options.)
    auto& checks = const_cast<CLI::Option&>(option);
    for (int i = 0;; ++i) {
        try {
            const std::string name = checks.get_validator(i)->get_name();
            if (name.starts_with(prefix)) return name.substr(prefix.size());
        } catch (const CLI::OptionNotFound&) {
            return {};
        }
    }
}

// "010" as "10": CLI11 reads a number with a leading zero as octal. ("0x10" stays hexadecimal.)
std::string Decimal(const std::string& text) {
    const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    size_t first = sign;
    const auto is_digit = [&](size_t at) {
        return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    while (text[first] == '0' && is_digit(first + 1)) ++first;
    return text.substr(0, sign) + text.substr(first);
}

// Whether a whole number exceeds 64 bits: lexical_cast returns the largest or smallest.
template <typename Number>
bool Saturates(const std::string& text) {
    errno = 0;
    if constexpr (std::is_unsigned_v<Number>) {
        std::strtoull(text.c_str(), nullptr, 0);
    } else {
        std::strtoll(text.c_str(), nullptr, 0);
    }
    return errno == ERANGE;
}

// The fault of a value's text; "": none. Rejects NaN here, because range checks accept it.
template <typename Number>
std::string NotA(const std::string& text, const CLI::Option& option) {
    Number value{};
    if constexpr (std::is_floating_point_v<Number>) {
        if (!CLI::detail::lexical_cast(text, value)) {
            return fmt::format("'{}': expected a number", text);
        }
        return std::isfinite(value) ? "" : fmt::format("'{}': expected a finite number", text);
    } else {
        if (CLI::detail::lexical_cast(text, value) && !Saturates<Number>(text)) return "";
        int64_t whole = 0;  // may have any size, because lexical_cast saturates
        if (!CLI::detail::lexical_cast(text, whole)) {
            return fmt::format("'{}': expected a whole number", text);
        }
        // The option's own range, which is narrower, is checked next.
        if (!Described(option, kAccept).empty()) return "";
        return fmt::format("'{}': expected {} to {}", text, std::numeric_limits<Number>::min(),
                           std::numeric_limits<Number>::max());
    }
}

template <typename Number>
void CheckNumbers(CLI::Option* option) {
    const auto wrong = [option](const std::string& text) { return NotA<Number>(text, *option); };
    option->check(CLI::Validator(wrong, ""));
    const auto to_decimal = [](std::string& text) {
        text = Decimal(text);
        return std::string();
    };
    option->transform(CLI::Validator(to_decimal, ""));
}

template <typename Value>
struct Element {
    using Type = Value;
};
template <typename Value>
struct Element<std::vector<Value>> {
    using Type = Value;
};

// The command that parsing had reached when it failed.
const CLI::App& LastParsed(const CLI::App& root) {
    const CLI::App* app = &root;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
    return *app;
}

std::vector<std::string> NamesOfCommands(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

// The name as a user types it: "weft train", "weft net bw".
std::string FullName(const CLI::App& app) {
    const CLI::App* above = app.get_parent();
    return above == nullptr ? app.get_name() : TypedName(FullName(*above) + " " + app.get_name());
}

// The usage line, without the last word of a command's name.
class ShorterUsage final : public CLI::Formatter {
  public:
    explicit ShorterUsage(const std::string& last_word) : end_(" " + last_word) {}
    std::string make_usage(const CLI::App* app, std::string name) const override {
        if (name.ends_with(end_)) name.resize(name.size() - end_.size());
        return CLI::Formatter::make_usage(app, name);
    }

  private:
    std::string end_;
};

// In --help "1..8", in errors and manual pages "1 to 8"; "0" if only one value is accepted.
template <typename T>
CLI::Validator InRange(T least, T most) {
    const auto text = [=](const char* between) {
        return least == most ? fmt::format("{}", least)
                             : fmt::format("{}{}{}", least, between, most);
    };
    const auto wrong = [=](const std::string& value) -> std::string {
        T number{};
        const bool good =
            CLI::detail::lexical_cast(value, number) && number >= least && number <= most;
        return good ? "" : fmt::format("'{}': expected {}", value, text(" to "));
    };
    return CLI::Validator(wrong, text(".."), std::string(kAccept) + text(" to "));
}

// ---- Commands as data ----

std::vector<std::string> CutAtCommas(const std::string& text) {
    return CLI::detail::split(text, ',');
}

// "TEXT:{a,b}" gives a and b; "" gives the words of Suggest.
std::vector<std::string> WordsOf(const CLI::Option& option, const std::string& type) {
    const size_t open = type.find('{');
    const size_t close = type.rfind('}');
    if (open != std::string::npos && close != std::string::npos && close > open) {
        return CutAtCommas(type.substr(open + 1, close - open - 1));
    }
    const std::string suggested = Described(option, kSuggest);
    return suggested.empty() ? std::vector<std::string>() : CutAtCommas(suggested);
}

ValueKind KindOf(const std::string& type, const DescribedFlag& flag) {
    if (!flag.words.empty()) return ValueKind::kWords;
    const std::string name = flag.LongName();
    const auto is = [&](const char* word) { return name == word || type == word; };
    if (is("MODEL") || is("MODEL|mtp")) return ValueKind::kModel;
    if (is("DIR") || is("FOLDER") || name.ends_with("-dir")) return ValueKind::kFolder;
    if (type.find("FILE") != std::string::npos || name.ends_with("file") ||
        name.starts_with("tls-")) {
        return ValueKind::kFile;
    }
    if (flag.positional && (is("IN") || is("OUT") || is("LOG") || is("FILE"))) {
        return ValueKind::kFile;
    }
    for (const char* number : {"INT", "UINT", "FLOAT", "NUMBER", "N", "K"}) {
        if (type.substr(0, type.find(':')) == number) return ValueKind::kNumber;
    }
    return ValueKind::kText;
}

DescribedFlag DescribeFlag(const CLI::Option& option) {
    DescribedFlag flag;
    flag.positional = option.get_positional();
    for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
    if (flag.positional) flag.names = {option.get_single_name()};
    flag.help = option.get_description();
    flag.group = option.get_group();
    flag.required = option.get_required();
    flag.by_default = option.get_default_str();
    if (option.get_items_expected_max() == 0) return flag;
    const std::string type = option.get_type_name();
    flag.many = option.get_items_expected_max() > 1;
    flag.follow = flag.many && option.get_allow_extra_args();
    flag.words = WordsOf(option, type);
    flag.kind = KindOf(type, flag);
    flag.value = type;
    flag.accepted = Described(option, kAccept);
    return flag;
}

DescribedCommand DescribeCommand(const CLI::App& app) {
    DescribedCommand command;
    command.name = app.get_name();
    command.about = app.get_description();
    command.footer = app.get_footer();
    for (const CLI::Option* option : app.get_options()) {
        if (!option->get_group().empty()) command.flags.push_back(DescribeFlag(*option));
    }
    for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!below->get_group().empty()) command.commands.push_back(DescribeCommand(*below));
    }
    return command;
}

// The error for the first word that is not a command.
Error UnknownWord(const CLI::App& app, const std::string& word) {
    const std::vector<std::string> commands = NamesOfCommands(app);
    if (word.starts_with('-')) {
        return UnknownFlag(DescribeCommand(app), FullName(app), word.substr(0, word.find('=')));
    }
    if (commands.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "'{}' takes no further word: '{}'. '--help' lists the flags.",
                         FullName(app), word);
    }
    return MakeError(ErrorCode::kUsage, "'{}' has no command '{}'.{} '--help' lists the commands.",
                     FullName(app), word, DidYouMean(word, commands));
}

// ---- Errors of CLI11 in Weft's words ----

// A flag as the user typed it.
struct TypedFlag {
    std::string name;
    std::string value;  // its first value; "": none
};

// The flags by which the user gave the option, in the order of the command line.
std::vector<TypedFlag> FlagsTyped(const CLI::Option& option, const TypedLine& typed) {
    std::vector<TypedFlag> flags;
    for (size_t i = 0; i < typed.words.size() && typed.words[i] != "--"; ++i) {
        const std::string& word = typed.words[i];
        const std::string name = word.substr(0, word.find('='));
        std::string value = i + 1 < typed.words.size() ? typed.words[i + 1] : "";
        if (name.size() < word.size()) value = word.substr(name.size() + 1);
        std::string flag = name;
        if (name.starts_with("--")) std::replace(flag.begin() + 2, flag.end(), '_', '-');
        const auto translated = typed.translated.find(flag);
        if (translated != typed.translated.end()) flag = translated->second;
        const bool one_dash = flag.size() > 2 && flag[0] == '-' && flag[1] != '-';
        if (flag.starts_with('-') && option.check_name(flag)) {
            flags.push_back({name, value});
        } else if (one_dash && option.check_sname(flag.substr(1, 1))) {  // "-n8"
            flags.push_back({flag.substr(0, 2), word.substr(2)});
        }
    }
    return flags;
}

// CLI11's text about an error. The text begins with the option's name, the only reference to the
// option in CLI11's errors. Only texts about conversions have words before the name.
std::string TextOf(const CLI::ParseError& error) {
    std::string text = error.what();
    constexpr std::string_view kConversion = "Could not convert: ";
    if (text.starts_with(kConversion)) text.erase(0, kConversion.size());
    std::ranges::replace(text, '\n', ' ');
    while (text.ends_with('.')) text.pop_back();
    return text;
}

// The option whose name begins the text of an error; null: none.
const CLI::Option* OptionOf(const CLI::App& app, const std::string& text) {
    for (const CLI::Option* option : app.get_options()) {
        const std::string name = option->get_name();
        if (name.empty() || !text.starts_with(name)) continue;
        if (text.substr(name.size()).find_first_of(": ") == 0) return option;
    }
    return nullptr;
}

// The text of --help about the option's value, for an error: "1 to 8", "one of auto, off", "TIME".
std::string ExpectedValue(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const DescribedFlag flag = DescribeFlag(option);
    if (type.ends_with('}')) return fmt::format("one of {}", fmt::join(flag.words, ", "));
    if (!flag.accepted.empty()) return flag.accepted;
    if (type == "TEXT") return "a text";
    if (type == "INT" || type == "UINT") return "a whole number";
    return type == "FLOAT" ? "a number" : type;
}

std::string GivenOften(const CLI::Option& option, const std::vector<TypedFlag>& flags) {
    std::vector<std::string> names;
    for (const TypedFlag& flag : flags) names.push_back(flag.name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return fmt::format("{}: {}given {} times; expected once. Keep one of them",
                       fmt::join(names, " and "), names.size() > 1 ? "names of one flag, " : "",
                       option.count());
}

std::string FaultText(const CLI::App& app, const CLI::ParseError& error, const TypedLine& typed) {
    const std::string text = TextOf(error);
    const CLI::Option* option = OptionOf(app, text);
    if (option == nullptr) return text;
    const std::string own = option->get_name();
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
        return fmt::format("'{}': {} is missing", FullName(app), own);
    }
    std::vector<TypedFlag> flags = FlagsTyped(*option, typed);
    if (flags.empty()) flags = {{own, ""}};  // from a file of flags
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
        if (option->count() > 1) return GivenOften(*option, flags);
        return fmt::format("{}: the value is missing; expected {}", flags.back().name,
                           ExpectedValue(*option));
    }
    if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
        const bool none = option->get_items_expected_max() == 0;
        return fmt::format("{}: expected {}", flags.back().name,
                           none ? "no value" : ExpectedValue(*option));
    }
    // The text quotes the faulty value first. If it quotes no value as typed, name the first flag.
    const auto quoted_at = [&](const TypedFlag& flag) { return text.find("'" + flag.value + "'"); };
    return std::ranges::min_element(flags, {}, quoted_at)->name + text.substr(own.size());
}

Error UsageError(const CLI::App& app, const CLI::ParseError& error, const TypedLine& typed) {
    const bool required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (required && app.get_require_subcommand_min() > 0) {
        return MakeError(ErrorCode::kUsage, "'{}' needs a command: {}. '{} --help' describes them.",
                         FullName(app), fmt::join(NamesOfCommands(app), ", "), FullName(app));
    }
    return MakeError(ErrorCode::kUsage, "{}. '--help' lists the flags.",
                     FaultText(app, error, typed));
}

}  // namespace

// ---- Option -------------------------------------------------------------------------------------

Option Option::Required() const {
    return Option(option_->required());
}

Option Option::Needs(const Option& other) const {
    return Option(option_->needs(other.option_));
}

Option Option::Range(int64_t least, int64_t most) const {
    return Option(option_->check(InRange(least, most)));
}

Option Option::Range(double least, double most) const {
    return Option(option_->check(InRange(least, most)));
}

Option Option::OneOf(const std::vector<std::string>& words) const {
    const auto wrong = [words](const std::string& value) -> std::string {
        if (std::ranges::find(words, value) != words.end()) return {};
        return "'" + value + "': expected " + CLI::detail::join(words, ", ") + "." +
               DidYouMean(value, words);
    };
    return Option(option_->check(CLI::Validator(wrong, "{" + CLI::detail::join(words, ",") + "}")));
}

Option Option::Suggest(const std::vector<std::string>& words) const {
    const auto any = [](const std::string&) { return std::string(); };
    return Option(option_->check(
        CLI::Validator(any, "", std::string(kSuggest) + CLI::detail::join(words, ","))));
}

Option Option::ExistingFile() const {
    const auto wrong = [](const std::string& path) -> std::string {
        if (check_of_line != nullptr) return "";
        std::error_code fault;
        if (std::filesystem::is_directory(path, fault)) {
            return fmt::format("'{}' is a folder; expected a file", path);
        }
        if (std::filesystem::exists(path, fault)) return "";
        return fmt::format("'{}': {}", path, fault ? fault.message() : "no such file");
    };
    return Option(option_->check(CLI::Validator(wrong, "FILE")));
}

Option Option::Valid(std::function<Status(const std::string&)> check) const {
    const auto wrong = [check = std::move(check)](const std::string& value) {
        const Status status = check(value);
        return status.ok() ? std::string() : status.error().message;
    };
    return Option(option_->check(CLI::Validator(wrong, "")));
}

Option Option::Bytes() const {
    const auto to_bytes = [](std::string& word) -> std::string {
        std::string bytes = Decimal(word);
        bool good = false;
        try {
            good = CLI::AsSizeValue(false)(bytes).empty();
        } catch (const CLI::ValidationError&) {
            good = false;
        }
        if (!good) return fmt::format("'{}': expected {}", word, kSizes);
        word = bytes;
        return {};
    };
    return Option(option_->transform(CLI::Validator(to_bytes, "", std::string(kAccept) + kSizes)));
}

Option Option::Tokens(int64_t automatic) const {
    const auto to_number = [automatic](std::string& word) -> std::string {
        if (word == "auto") {
            word = std::to_string(automatic);
            return {};
        }
        word = Decimal(word);
        const std::map<char, double> units = {{'k', 1e3}, {'K', 0x1p10}, {'m', 1e6}, {'M', 0x1p20}};
        int64_t plain = 0;
        if (CLI::detail::lexical_cast(word, plain)) return {};
        const std::string fault = fmt::format("'{}': expected {}", word, kTokens);
        const auto unit = word.empty() ? units.end() : units.find(word.back());
        double number = 0;
        if (unit == units.end() ||
            !CLI::detail::lexical_cast(word.substr(0, word.size() - 1), number)) {
            return fault;
        }
        number = std::floor(number * unit->second);
        if (!(std::abs(number) < 0x1p53)) return fault;
        word = std::to_string(static_cast<int64_t>(number));
        return {};
    };
    return Option(
        option_->transform(CLI::Validator(to_number, "", std::string(kAccept) + kTokens)));
}

Option Option::OnOff() const {
    const auto wrong = [](const std::string& word) -> std::string {
        if (word == "on" || word == "off" || word == "1" || word == "0") return {};
        return fmt::format("'{}': expected on or off", word);
    };
    return Option(option_->check(CLI::Validator(wrong, "{on,off}")));
}

Option Option::Commas() const {
    return Option(option_->delimiter(','));
}

Option Option::OneEach() const {
    return Option(option_->allow_extra_args(false));
}

Option Option::Group(const std::string& heading) const {
    return Option(option_->group(heading));
}

Option Option::TypeName(const std::string& name) const {
    return Option(option_->type_name(name));
}

Option Option::ShowDefault() const {
    return Option(option_->capture_default_str());
}

Option Option::DefaultText(const std::string& text) const {
    return Option(option_->default_str(text));
}

bool Option::given() const {
    return option_->count() > 0;
}

std::string Option::name() const {
    return option_->get_name();
}

std::string Option::value() const {
    return CLI::detail::join(option_->results(), ",");
}

// ---- Command ------------------------------------------------------------------------------------

Command Command::AddCommand(const std::string& name, const std::string& help,
                            const std::string& footer) const {
    return Command(app_->add_subcommand(name, help)->footer(footer));
}

void Command::NeedsCommand() const {
    app_->require_subcommand(1);
}

Command Command::Group(const std::string& heading) const {
    Command command = *this;
    command.group_ = heading;
    return command;
}

Command Command::ShowDefaults() const {
    Command command = *this;
    command.shows_defaults_ = true;
    return command;
}

// names: as in AddOption, with the name of the value.
Option Command::Styled(CLI::Option* option, Names names) const {
    const size_t blank = names.find(' ');
    if (blank != names.npos) option->type_name(names.substr(blank + 1));
    if (shows_defaults_) option->capture_default_str();
    return Option(option->group(group_));
}

template <typename Value>
Option Command::AddOption(Names names, Value& value, Help help) const {
    using Type = typename Element<Value>::Type;
    CLI::Option* option = app_->add_option(names.substr(0, names.find(' ')), value, help);
    if constexpr (std::is_arithmetic_v<Type> && !std::is_same_v<Type, bool>) {
        CheckNumbers<Type>(option);
    }
    return Styled(option, names);
}

template Option Command::AddOption(Names, int32_t&, Help) const;
template Option Command::AddOption(Names, int64_t&, Help) const;
template Option Command::AddOption(Names, uint64_t&, Help) const;
template Option Command::AddOption(Names, float&, Help) const;
template Option Command::AddOption(Names, double&, Help) const;
template Option Command::AddOption(Names, bool&, Help) const;
template Option Command::AddOption(Names, std::string&, Help) const;
template Option Command::AddOption(Names, std::vector<int32_t>&, Help) const;
template Option Command::AddOption(Names, std::vector<int64_t>&, Help) const;
template Option Command::AddOption(Names, std::vector<double>&, Help) const;
template Option Command::AddOption(Names, std::vector<std::string>&, Help) const;

Option Command::AddTaker(Names names, Take take, Help help) const {
    const auto checked = [names, take = std::move(take)](double value) {
        Throw(names, take(value));
    };
    CLI::Option* option = app_->add_option_function<double>(names, checked, help);
    CheckNumbers<double>(option);
    return Styled(option, names);
}

Option Command::AddFlag(Names names, bool& value, Help help) const {
    return Styled(app_->add_flag(names, value, help), names);
}

Option Command::AddFlag(Names names, std::function<void()> act, Help help) const {
    return Styled(app_->add_flag_callback(names, std::move(act), help), names);
}

Option Command::Find(const std::string& flag) const {
    return Option(app_->get_option(flag));
}

void Command::Footer(const std::string& text) const {
    app_->footer(text);
}

void Command::LeaveOut(const std::string& last_word) const {
    app_->formatter(std::make_shared<ShorterUsage>(last_word));
}

void Command::Callback(std::function<void()> act, std::function<Status()> check) const {
    app_->callback([act = std::move(act), check = std::move(check)] {
        if (check_of_line == nullptr) return act();
        if (check) *check_of_line = check();
    });
}

void Command::Check(const std::string& flag, std::function<std::string()> check) const {
    app_->parse_complete_callback([flag, check = std::move(check)] { Throw(flag, check()); });
}

DescribedCommand Command::Describe() const {
    return DescribeCommand(*app_);
}

bool Command::Given(const std::string& flag) const {
    return app_ != nullptr && app_->count(flag) > 0;
}

// ---- Parser -------------------------------------------------------------------------------------

Parser::Parser(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {
    // At most one command; all commands below inherit this. Without a maximum, CLI11 treats a
    // second command name as another command and runs both.
    app_->require_subcommand(0, 1);
}

Parser::~Parser() = default;

std::set<std::string> Parser::FlagNames() const {
    std::set<std::string> names;
    CollectNames(*app_, names);
    return names;
}

DescribedCommand Parser::Describe() const {
    return DescribeCommand(*app_);
}

namespace {

// "-n=4" as "-n" and "4": CLI11 uses "=4" as the value. "--file=" as "--file" and "": CLI11 uses
// the next word.
std::vector<std::string> WithoutEquals(const DescribedCommand& program,
                                       const std::vector<std::string>& words) {
    const std::vector<WordKind> kinds = KindsOf(program, words);
    std::vector<std::string> parted;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (kinds[i] != WordKind::kFlag) {
            parted.push_back(word);
            continue;
        }
        const bool is_short = word.size() > 3 && word[0] == '-' && word[2] == '=' &&
                              std::isalpha(static_cast<unsigned char>(word[1])) != 0;
        const bool is_empty =
            i + 1 < words.size() && word.starts_with("--") && word.find('=') == word.size() - 1;
        parted.push_back(is_short ? word.substr(0, 2) : word.substr(0, word.size() - is_empty));
        if (is_short) parted.push_back(word.substr(3));
        if (is_empty) parted.emplace_back();
    }
    return parted;
}

// An empty path is an error: an unset variable would turn a flag such as --api-key-file off.
Status CheckPaths(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->count() == 0) continue;
        const DescribedFlag flag = DescribeFlag(*option);
        const bool path = flag.kind == ValueKind::kFile || flag.kind == ValueKind::kFolder;
        const std::vector<std::string> values = option->results();
        if (!path || std::ranges::find(values, "") == values.end()) continue;
        return MakeError(ErrorCode::kUsage, "{}: the path is empty. Is a variable unset?",
                         option->get_name());
    }
    for (const CLI::App* below : app.get_subcommands()) WEFT_TRY(CheckPaths(*below));
    return {};
}

}  // namespace

Result<Parser::Outcome> Parser::Parse(std::vector<std::string> words, const TypedLine& typed) {
    words = WithoutEquals(Describe(), words);
    std::ranges::reverse(words);  // CLI11 expects reversed words
    try {
        app_->parse(words);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            std::ostringstream help;
            app_->exit(error, help, help);
            WriteOut(help.str());
            return Outcome::kHelpShown;
        }
        // A missing value may be present but misspelled.
        const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                             dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
        const std::vector<std::string> rest = app_->remaining(true);
        if (missing && !rest.empty()) return UnknownWord(LastParsed(*app_), rest.front());
        return UsageError(LastParsed(*app_), error, typed);
    }
    WEFT_TRY(CheckPaths(*app_));
    return app_->get_subcommands().empty() ? Outcome::kNoCommand : Outcome::kDone;
}

Status Parser::Check(std::vector<std::string> words, const TypedLine& typed) {
    Status checked;
    check_of_line = &checked;
    const Result<Outcome> parsed = Parse(std::move(words), typed);
    check_of_line = nullptr;
    WEFT_TRY(parsed);
    return checked;
}

}  // namespace weft::cli
