// How each family writes calls, reasoning and the end of an answer.
#pragma once

#include <string>
#include <vector>

#include "chat/answer.h"

namespace weft::chat {

// A family's format.
struct Manner {
    ToolCallFormat family;
    const char* name;
    std::string begin{}, between{}, end{};  // around all calls
    // Writes a call of `function` with a city (string) and a number of days.
    std::string (*call)(const std::string& city, int days) = nullptr;
    std::string think{}, thought{};  // around reasoning
    std::string last{};              // end of the answer
};
std::vector<Manner> Manners();

std::string JsonArguments(const std::string& city, int days);
std::string JsonCall(const std::string& city, int days);
// DeepSeek's markers <BAR tool words BAR>.
std::string Bar(const std::string& words);
inline const std::string kCall = "call\xE2\x96\x81", kCalls = "calls\xE2\x96\x81";
// DeepSeek V3.2's tags: <BAR DSML BAR words>.
std::string Dsml(const std::string& words);

}  // namespace weft::chat
