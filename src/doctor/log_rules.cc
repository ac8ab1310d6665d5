#include "doctor/log_rules.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "doctor/kernel_log.h"

namespace weft::doctor {
namespace {

constexpr std::string_view kLogTable =
#include "doctor/log_rules.inc"
    ;

struct LogTable {
    std::vector<LogRule> rules;
    std::vector<std::string_view> words;
};

// The enum value that `word` names.
template <typename Value>
Value Named(std::string_view word, const std::map<std::string_view, Value>& values) {
    const auto found = values.find(word);
    WEFT_CHECK(found != values.end());
    return found->second;
}

LogTable ReadTable() {
    LogTable table;
    std::map<std::string_view, std::string_view> texts;
    LogRule rule{};
    using enum LogSubject;
    const std::map<std::string_view, LogSubject> subjects = {
        {"card", kCard}, {"gpu", kGpu}, {"machine", kMachine}, {"crash", kCrash}, {"keep", kKeep}};
    const std::map<std::string_view, Severity> severities = {
        {"note", Severity::kNote}, {"warn", Severity::kWarn}, {"fail", Severity::kFail}};
    for (std::string_view line : Lines(kLogTable)) {
        if (Trim(line).empty() || line.starts_with('#')) continue;
        if (line.starts_with("words ")) {
            for (std::string_view word : Words(line.substr(6))) table.words.push_back(word);
        } else if (line.starts_with('$')) {
            const size_t equals = line.find(" = ");
            texts[line.substr(0, equals)] = line.substr(equals + 3);
        } else if (line.starts_with(' ')) {
            const size_t colon = line.find(':');
            rule.drivers = Trim(line.substr(0, colon));
            for (std::string_view rest = line.substr(colon + 1); !rest.empty();) {
                const size_t end = std::min(rest.find(" ; "), rest.size());
                rule.words = Trim(rest.substr(0, end));
                table.rules.push_back(rule);
                rest.remove_prefix(std::min(end + 3, rest.size()));
            }
        } else {
            const auto fields = Split(line, '|');
            WEFT_CHECK(fields.size() == 4);
            const auto text = [&](size_t field) {
                const auto known = texts.find(Trim(fields[field]));
                return known == texts.end() ? Trim(fields[field]) : known->second;
            };
            const auto head = Words(fields[0]);
            rule = {Named(head[0], subjects), Named(head[1], severities), text(1), text(2),
                    text(3)};
        }
    }
    return table;
}

const LogTable& TheLogTable() {
    static const LogTable table = ReadTable();
    return table;
}

bool Matches(std::string_view lower, std::string_view words) {
    for (std::string_view part : Split(words, '*')) {
        part = Trim(part);
        const size_t at = lower.find(part);
        if (at == lower.npos) return false;
        lower.remove_prefix(at + part.size());
    }
    return true;
}

bool HasDriver(std::string_view lower, std::string_view drivers) {
    if (drivers == "any") return true;
    const std::string_view net = NetworkDriverIn(lower), gpu = GpuDriverIn(lower);
    if (drivers == "net") return !net.empty();
    if (drivers == "gpu") return !gpu.empty();
    return std::ranges::any_of(Words(drivers),
                               [&](std::string_view one) { return one == net || one == gpu; });
}

}  // namespace

std::span<const LogRule> LogRules() {
    return TheLogTable().rules;
}

std::span<const std::string_view> LogVocabulary() {
    return TheLogTable().words;
}

const LogRule* FindRule(std::string_view lower, std::initializer_list<LogSubject> subjects) {
    const auto found = std::ranges::find_if(LogRules(), [&](const LogRule& rule) {
        return std::ranges::find(subjects, rule.subject) != subjects.end() &&
               Matches(lower, rule.words) && HasDriver(lower, rule.drivers);
    });
    return found == LogRules().end() ? nullptr : &*found;
}

}  // namespace weft::doctor
