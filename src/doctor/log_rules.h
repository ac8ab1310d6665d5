// The table log_rules.inc: messages of kernels and drivers, their meaning and their remedy.
//
//     $name = text                                      a text shared by several rules
//     SUBJECT SEVERITY | expected | why | cure          a rule; see LogSubject and LogRule
//       DRIVERS: pattern ; pattern                      "net", "gpu", "any", or names of drivers
//     words a b c                                       known words besides those of patterns
//
// A pattern lists parts of a line in their order, with '*' between them. Patterns are in lower
// case, because drivers change the case between versions. A mark such as {aspm} in a cure is
// replaced by a row of cures.inc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "doctor/finding.h"

namespace weft::doctor {

// Kind of a message. kKeep: a check reads the line itself.
enum class LogSubject { kCard, kGpu, kMachine, kCrash, kKeep };

struct LogRule {
    LogSubject subject;
    Severity severity;
    std::string_view expected, why, cure;
    std::string_view drivers = {}, words = {};
};

// All rules, in the order of the table.
std::span<const LogRule> LogRules();
// The words in the rows "words".
std::span<const std::string_view> LogVocabulary();

// The first rule with one of `subjects` that matches the line, which is in lower case; null: none.
const LogRule* FindRule(std::string_view lower, std::initializer_list<LogSubject> subjects);

}  // namespace weft::doctor
