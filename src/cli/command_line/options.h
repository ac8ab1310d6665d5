// Declares commands with flags and help texts, and parses a command line into variables.
//
//     Command run = app.AddCommand("run", "Answer a prompt");
//     run.AddNumber("-n,--predict", request.max_tokens, -1, 1 << 30, "Most tokens (128)");
//     run.Callback([&] { status = Run(request); });
//
// The parser is CLI11 (github.com/CLIUtils/CLI11). Only options.cc includes it, because its
// templates add 10 seconds and more to the compilation of each file.
//
// Command and Option are handles: they can be copied, and are valid as long as their Parser.
// Variables that options fill must live as long as the Parser. Thread: one for all handles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "cli/command_line/command_tree.h"

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
    Option Needs(const Option& other) const;  // requires the other option

    // Accepted values; others are kUsage, with the accepted values in the message.
    Option Range(int64_t least, int64_t most) const;
    Option Range(int least, int most) const { return Range(int64_t{least}, int64_t{most}); }
    Option Range(double least, double most) const;
    Option OneOf(const std::vector<std::string>& words) const;
    // Completion offers these words, but other values may be valid.
    Option Suggest(const std::vector<std::string>& words) const;
    Option ExistingFile() const;
    Option Valid(std::function<Status(const std::string&)> check) const;
    Option Bytes() const;
    // The value counts tokens: 8k is 8000, 8K is 8192, 1m and 1M likewise; auto is `automatic`.
    Option Tokens(int64_t automatic) const;
    Option OnOff() const;   // for a bool: on or off
    Option Commas() const;  // for a list: a,b,c
    // For a list: each flag takes one word, a value or a,b,c.
    Option OneEach() const;

    // Help.
    Option Group(const std::string& heading) const;  // "": hidden
    Option TypeName(const std::string& name) const;
    Option ShowDefault() const;  // the variable's current value
    Option DefaultText(const std::string& text) const;

    // After parsing: whether the command line has this flag.
    bool given() const;
    std::string name() const;   // "--context"
    std::string value() const;  // as on the command line

  private:
    CLI::Option* option_ = nullptr;
};

// The type of a number's bounds.
template <typename Value>
using BoundOf = std::conditional_t<std::is_floating_point_v<Value>, double, int64_t>;

// A command, or the program itself with its commands.
class Command {
  public:
    Command() = default;
    explicit Command(CLI::App* app) : app_(app) {}

    // footer: text below the flags in the help.
    Command AddCommand(const std::string& name, const std::string& help,
                       const std::string& footer = "") const;
    void NeedsCommand() const;  // requires exactly one of its commands

    // Handles of this command. Flags added to them appear under `heading` in --help ("": hidden),
    // or show their variable's current value.
    Command Group(const std::string& heading) const;
    Command ShowDefaults() const;

    // names: "-n,--predict", "--wait TIME" with the name of the value, or "MODEL" for a positional
    // value. Value: a number, bool, std::string, or a vector of numbers or strings.
    using Names = const std::string&;
    using Help = const std::string&;
    template <typename Value>
    Option AddOption(Names names, Value& value, Help help) const;
    // A number from `least` to `most`, both included.
    template <typename Value>
    Option AddNumber(Names names, Value& value, BoundOf<Value> least, BoundOf<Value> most,
                     Help help) const {
        return AddOption(names, value, help).Range(least, most);
    }
    // A size in bytes: 16KB, 2MB (powers of 1024); at most 1 TiB.
    template <typename Value>
    Option AddSize(Names names, Value& value, int64_t least, Help help) const {
        return AddOption(names, value, help).Bytes().Range(least, int64_t{1} << 40);
    }
    Option AddChoice(Names names, std::string& value, const std::vector<std::string>& words,
                     Help help) const {
        return AddOption(names, value, help).OneOf(words);
    }
    // A list: one value after each flag, which may be repeated.
    template <typename Values>
    Option AddEach(Names names, Values& values, Help help) const {
        return AddOption(names, values, help).OneEach();
    }
    // take: receives the value and returns its fault, "" for none.
    using Take = std::function<std::string(double)>;
    Option AddTaker(Names names, Take take, Help help) const;

    // Sets `value` if the flag is given; "!--no-x" clears it.
    Option AddFlag(Names names, bool& value, Help help) const;
    Option AddFlag(Names names, std::function<void()> act, Help help) const;
    Option Find(const std::string& flag) const;  // an option of this command, by any of its names

    // Text below the flags in the help.
    void Footer(const std::string& text) const;
    // Makes `last_word` of the name optional and omits it in the help.
    void LeaveOut(const std::string& last_word) const;

    // act: the action of the command; Parse calls it after all checks. check: what `act` checks
    // first, if that needs no file and no other host; Parser::Check calls it instead.
    void Callback(std::function<void()> act, std::function<Status()> check = {}) const;
    // Called after all flags of the command are parsed: returns the fault of `flag`, or "".
    void Check(const std::string& flag, std::function<std::string()> check) const;

    DescribedCommand Describe() const;  // as in --help

    // After parsing: whether the command line has the flag, by any of its names.
    bool Given(const std::string& flag) const;

  private:
    Option Styled(CLI::Option* option, Names names) const;

    CLI::App* app_ = nullptr;
    std::string group_ = "Options";
    bool shows_defaults_ = false;
};

// A command line as the user typed it, so that errors name flags as the user spelled them.
struct TypedLine {
    std::vector<std::string> words;
    std::map<std::string, std::string> translated;  // other names (habits.h) to Weft's
};

// The program. Owns all commands.
class Parser {
  public:
    Parser(const std::string& about, const std::string& name);
    ~Parser();
    Parser(const Parser&) = delete;
    Parser& operator=(const Parser&) = delete;

    Command root() const { return Command(app_.get()); }
    // The long names, without --, of all commands' flags.
    std::set<std::string> FlagNames() const;
    // All commands as in --help.
    DescribedCommand Describe() const;

    enum class Outcome { kDone, kHelpShown, kNoCommand };
    // words: a command line without the program's name. typed: the line from which it was made.
    // Fills the variables and calls the callback of the named command. Errors: kUsage. Propagates
    // exceptions of callbacks.
    [[nodiscard]] Result<Outcome> Parse(std::vector<std::string> words, const TypedLine& typed);
    // Checks a command line that another host will run; its files may be absent here. Errors: as
    // Parse for its words.
    [[nodiscard]] Status Check(std::vector<std::string> words, const TypedLine& typed);

  private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace weft::cli
