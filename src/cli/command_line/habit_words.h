// Flags, values and commands of llama.cpp, Ollama, vLLM, SGLang, and of programs that train, with
// their counterparts in Weft.
// The tables are data; habits.h applies them.
#pragma once

#include <span>
#include <string_view>

namespace weft::cli {

inline constexpr std::string_view kModelWord = "MODEL";

enum class Taker {
    kAll,
    kInference,  // commands that run a model
    kKeys,       // all; the value is the first of the two types in --kv-dtype,
    kValues,     // or the second
    kFormer      // all; a former name of Weft's own flag, which help, completion and pages omit
};

// Flags with the same meaning. flag: Weft's flag; kModelWord: the value is the MODEL.
struct Synonym {
    std::string_view names, flag;  // names: separated by spaces
    Taker taker = Taker::kAll;
};
std::span<const Synonym> Synonyms();

// A value that Weft's flag does not accept. value: Weft's value; empty: drop the flag.
struct ValueSynonym {
    std::string_view flags, other, value;
};
std::span<const ValueSynonym> ValueSynonyms();

// A flag without a counterpart in Weft, and the next step for the user.
struct Advice {
    std::string_view names, advice;
};
// command: "weft run".
std::span<const Advice> AdvicesOf(std::string_view command);
// Whether the users of the command come from programs that run a model.
bool IsInference(std::string_view command);

// Commands of other programs, and former ones (two words: "train-plot"): Weft's command, or the
// next step.
struct OtherCommand {
    std::string_view names, command, advice;
};
std::span<const OtherCommand> OtherCommands();

// Whether `name` is one of `names`.
bool Lists(std::string_view names, std::string_view name);

}  // namespace weft::cli
