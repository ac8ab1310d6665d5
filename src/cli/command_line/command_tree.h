// All commands and flags as data, for manual pages and completion. Parser::Describe fills it
// (options.h). Hidden flags and commands are omitted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::cli {

enum class ValueKind {
    kNone,    // a flag without a value
    kWords,   // one of DescribedFlag::words
    kFile,    // a path
    kFolder,  // a path to a folder
    kModel,   // a MODEL word
    kNumber,
    kText  // anything else
};

// A flag or a positional value.
struct DescribedFlag {
    std::vector<std::string>
        names;  // with dashes: "-n", "--predict"; for a positional value "MODEL"
    std::string help, group;
    std::string value;               // as --help names it: "INT:0..3"; "" without a value
    std::string accepted;            // for errors and manual pages: "0 to 3"; "": not stated
    std::string by_default;          // "": not stated
    std::vector<std::string> words;  // for kWords
    ValueKind kind = ValueKind::kNone;
    bool positional = false, required = false;
    bool many = false;    // takes several values
    bool follow = false;  // values may follow one another: --data A B

    // The longest name, without dashes.
    std::string LongName() const;
};

struct DescribedCommand {
    std::string name, about, footer;
    std::vector<DescribedFlag> flags;  // in the order of --help
    std::vector<DescribedCommand> commands;

    // The command of this name; null: none.
    const DescribedCommand* Find(const std::string& command) const;
    const DescribedFlag* FindFlag(const std::string& flag) const;
};

enum class WordKind {
    kCommand,
    kFlag,        // "--wait", "-n8", "--wait=90s"
    kValue,       // of the flag before it: any word, also "--help"
    kPositional,  // any other word
    kRest         // "--", and the words after it
};

// Whether a word that is no value is a flag: "-n", "--wait"; false for "-", "-5" and "-.5".
bool LooksLikeFlag(std::string_view word);
// The flag whose value is the word after `word`: "--wait", "-n", "-vn"; null: none.
const DescribedFlag* AwaitsValue(const DescribedCommand& command, const std::string& word);
// The kind of each word of a command line, without the program's name.
std::vector<WordKind> KindsOf(const DescribedCommand& program,
                              const std::vector<std::string>& words);
// Whether the line has the flag, "--config" or "--config=FILE".
bool HasFlag(const DescribedCommand& program, const std::vector<std::string>& words,
             const std::string& flag);

// The flags of the line by their longest names: "--port=8080", or "--json" without a value.
std::vector<std::string> FlagsOf(const DescribedCommand& program,
                                 const std::vector<std::string>& words);

// kUsage: the command has no such flag; names the most similarly spelled one. full_name: the
// command as a user types it: "weft run".
Error UnknownFlag(const DescribedCommand& command, const std::string& full_name,
                  const std::string& flag);

}  // namespace weft::cli
