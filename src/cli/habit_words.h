// Flags, values and commands of llama.cpp, Ollama, vLLM, SGLang, and of programs that train, with
// their counterparts in Weft.
// The tables are data; habits.h applies them.
#pragma once

#include <span>
#include <string_view>

namespace weft::cli {

inline constexpr std::string_view kModelWord = "MODEL";

// Flags with the same meaning. flag: Weft's; kModelWord: the value is the MODEL.
struct Synonym {
    std::string_view names, flag;  // names: separated by spaces
    bool inference = false;        // only for commands that run a model
};
std::span<const Synonym> Synonyms();
// Former names of Weft's own flags, one per row. They still work; help, completion and pages omit
// them.
std::span<const Synonym> FormerFlags();

// A value that Weft's flag does not accept. value: Weft's; empty: drop the flag.
struct ValueSynonym {
    std::string_view flags, other, value;
};
std::span<const ValueSynonym> ValueSynonyms();

// Flags without a counterpart, and the next step: of commands that run a model, and of 'weft
// train'.
struct Advice {
    std::string_view names, advice;
};
std::span<const Advice> Advices();
std::span<const Advice> TrainingAdvices();

// Commands of other programs: Weft's command, or the next step.
struct OtherCommand {
    std::string_view names, command, advice;
};
std::span<const OtherCommand> OtherCommands();

// Whether `name` is one of `names`.
bool Lists(std::string_view names, std::string_view name);

}  // namespace weft::cli
