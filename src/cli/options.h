// Commands with their flags and help texts, and the parsing of a command line into variables.
//
//     Command run = app.AddCommand("run", "Answer a prompt");
//     run.AddOption("-n,--predict", request.max_tokens, "Most tokens (128)").Range(-1, 1 << 30);
//     run.Callback([&] { status = Run(request); });
//
// The parser is CLI11 (github.com/CLIUtils/CLI11). Only options.cc includes it: its templates would
// compile for 10 seconds and more in each file of a command.
//
// Command and Option are handles: copied at will, valid as long as the Parser that they come from.
// The variables that options fill must live as long. One thread uses all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_tree.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::cli {

// One flag or positional value. Each method sets one property and returns the handle.
class Option {
  public:
    Option() = default;
    explicit Option(CLI::Option* option) : option_(option) {}

    Option Required() const;
    Option Needs(const Option& other) const;  // only together with it

    // Which values are taken; others are kUsage, and say what was expected.
    Option Range(int64_t least, int64_t most) const;
    Option Range(int least, int most) const { return Range(int64_t{least}, int64_t{most}); }
    Option Range(double least, double most) const;
    Option Positive() const;
    Option OneOf(const std::vector<std::string>& words) const;
    // What completion offers, beside which other values may be right.
    Option Suggest(const std::vector<std::string>& words) const;
    Option ExistingFile() const;
    // wrong: what is wrong with a value, "" for nothing.
    Option Valid(std::function<std::string(const std::string&)> wrong) const;
    Option Bytes() const;  // 16KB, 2MB: powers of 1024
    // The value counts tokens: 8k is 8000, 8K is 8192, 1m and 1M likewise; auto is `automatic`.
    Option Tokens(int64_t automatic) const;
    Option OnOff() const;   // of a bool: on or off
    Option Commas() const;  // of a list: a,b,c
    // Of a list: one value (or a,b,c) after each flag; what follows is no value of it.
    Option OneEach() const;

    // The help.
    Option Group(const std::string& heading) const;  // "": hidden
    Option TypeName(const std::string& name) const;
    Option ShowDefault() const;  // the variable's value at this time
    Option DefaultText(const std::string& text) const;

    // Once the command line is parsed: whether it has this flag.
    bool given() const;
    std::string name() const;  // "--context"

  private:
    CLI::Option* option_ = nullptr;
};

// A command, or the program itself, whose commands they are.
class Command {
  public:
    Command() = default;
    explicit Command(CLI::App* app) : app_(app) {}

    Command AddCommand(const std::string& name, const std::string& help) const;
    void NeedsCommand() const;  // exactly one of those

    // names: "-n,--predict", or "MODEL" for a positional value.
    using Names = const std::string&;
    using Help = const std::string&;
    Option AddOption(Names names, int32_t& value, Help help) const;
    Option AddOption(Names names, int64_t& value, Help help) const;
    Option AddOption(Names names, uint64_t& value, Help help) const;
    Option AddOption(Names names, float& value, Help help) const;
    Option AddOption(Names names, double& value, Help help) const;
    Option AddOption(Names names, bool& value, Help help) const;
    Option AddOption(Names names, std::string& value, Help help) const;
    Option AddOption(Names names, std::vector<int32_t>& values, Help help) const;
    Option AddOption(Names names, std::vector<int64_t>& values, Help help) const;
    Option AddOption(Names names, std::vector<double>& values, Help help) const;
    Option AddOption(Names names, std::vector<std::string>& values, Help help) const;
    // take: gets the value and returns what is wrong with it, "" for nothing.
    using Take = std::function<std::string(double)>;
    Option AddTaker(Names names, Take take, Help help) const;

    // Sets `value` where the flag is given; "!--no-x" clears it.
    Option AddFlag(Names names, bool& value, Help help) const;
    Option AddFlag(Names names, std::function<void()> act, Help help) const;

    // Below the flags in the help.
    void Footer(const std::string& text) const;
    // The name may be left out where it is `last_word`, and its help does so.
    void LeaveOut(const std::string& last_word) const;
    // The command does nothing but print its help.
    void OnlyHelp() const;

    // What the command does; called by Parse, after all checks.
    void Callback(std::function<void()> act) const;
    // Called when all flags of the command are parsed: returns what is wrong with `flag`, or "".
    void Check(const std::string& flag, std::function<std::string()> check) const;

    // Once the command line is parsed: whether it has the flag (by any of its names).
    bool Given(const std::string& flag) const;

  private:
    CLI::App* app_ = nullptr;
};

// The program. Owns all commands.
class Parser {
  public:
    Parser(const std::string& about, const std::string& name);
    ~Parser();
    Parser(const Parser&) = delete;
    Parser& operator=(const Parser&) = delete;

    Command root() const { return Command(app_.get()); }
    // The long names, without --, of the flags of all commands.
    std::set<std::string> FlagNames() const;
    // All commands, as --help has them.
    DescribedCommand Describe() const;

    enum class Outcome { kDone, kHelpShown, kNoCommand };
    // words: a command line without the program's name. Fills the variables and calls the callback
    // of the command that is named. Errors: kUsage. Passes on what a callback throws.
    [[nodiscard]] Result<Outcome> Parse(std::vector<std::string> words);

  private:
    std::unique_ptr<CLI::App> app_;
};

// A line of a file of flags: NAME = VALUE, or NAME = ["a", "b"].
struct FlagLine {
    std::vector<std::string> tables;  // the headings ([a.b]: a, b) that it stands under
    std::string name;
    std::vector<std::string> values;
};

// text: TOML's keys and values (toml.io). Errors: kUsage.
Result<std::vector<FlagLine>> ParseFlagLines(const std::string& text);

}  // namespace weft::cli
