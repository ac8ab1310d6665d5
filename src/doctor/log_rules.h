// The table log_rules.inc: messages of kernels and drivers, their meaning and their cure.
//
//     $name = text                                      a text that several rules share
//     SUBJECT SEVERITY | expected | why | cure          a rule: subject card, gpu, machine, crash
//       DRIVERS: pattern ; pattern                      "net", "gpu", "any", or names of drivers
//     words a b c                                       words of a line that no pattern holds
//
// A pattern holds parts of a line in their order, '*' between them, in small letters: drivers
// change the case from one version to the next. Marks such as {aspm} in a cure name rows of
// cures.inc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "doctor/finding.h"

namespace weft::doctor {

// keep: lines that a check reads by itself.
enum class LogSubject { kCard, kGpu, kMachine, kCrash, kKeep };

struct LogRule {
    LogSubject subject;
    Severity severity;
    std::string_view expected, why, cure;
    std::string_view drivers, words;
};

// In the order of the table.
std::span<const LogRule> LogRules();
// The rows "words".
std::span<const std::string_view> LogVocabulary();

// The first rule of one of `subjects` that matches a line in small letters; null without one.
const LogRule* FindRule(std::string_view lower, std::initializer_list<LogSubject> subjects);

}  // namespace weft::doctor
