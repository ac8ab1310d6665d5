// What drivers and the kernel say when something is wrong: the messages that checks look for in the
// kernel's log, what each means, and what mends it.
//
// The words are those of the format strings of Linux's drivers; each row names the file. They are
// compared in small letters, since drivers change their case from one version to the next.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "doctor/finding.h"

namespace weft::doctor {

enum class LogSubject { kCard, kGpu, kMachine };

struct LogMessage {
    LogSubject subject;
    // Parts that a line holds in this order, '*' between them.
    std::string_view words;
    // One of these must stand in the line; "net" is any network card's driver, "gpu" any GPU's, ""
    // asks for none.
    std::string_view drivers;
    Severity severity;
    const char* expected;
    const char* why;
    const char* fix;
};

// Tables, one after the other.
template <size_t... N>
constexpr auto JoinedRows(const std::array<LogMessage, N>&... tables) {
    std::array<LogMessage, (N + ...)> all{};
    size_t at = 0;
    const auto add = [&](const auto& table) {
        for (const LogMessage& message : table) all[at++] = message;
    };
    (add(tables), ...);
    return all;
}

std::span<const LogMessage> CardMessages();
std::span<const LogMessage> GpuMessages();  // and the machine's
// Words that are in no message, but belong to one's line.
std::string_view LogVocabulary();

// lower: the known words of a line in small letters.
bool Says(std::string_view lower, const LogMessage& message);
// The first of `messages` that the line says; null where there is none.
const LogMessage* FindMessage(std::string_view lower, std::span<const LogMessage> messages);

}  // namespace weft::doctor
