// The table log_rules.inc: messages of kernels and drivers, their meaning and their remedy.
//
//     $name = text                                      a text shared by several rules
//     SUBJECT SEVERITY | expected | why | cure          a rule: subject card, gpu, machine, crash
//       DRIVERS: pattern ; pattern                      "net", "gpu", "any", or names of drivers
//     words a b c                                       known words that no pattern contains
//
// A pattern lists parts of a line in order, with '*' between them, in lower case, because drivers
// change the case between versions. Marks such as {aspm} in a cure name rows of cures.inc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "doctor/finding.h"

namespace weft::doctor {

// In the order of SubjectOf. kKeep: lines that a check reads directly.
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

// The first rule of one of `subjects` that matches a lower-case line; null: none.
const LogRule* FindRule(std::string_view lower, std::initializer_list<LogSubject> subjects);

}  // namespace weft::doctor
