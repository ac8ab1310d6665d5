// A Finding: what one check says of one host (or of a pair), in words for people and programs.
//
// severity  ok    as it should be
//           note  worth knowing; nothing is slower or broken for sure
//           warn  costs speed or will hurt under load
//           fail  will not work, or at a fraction of what the hardware gives: exit status 1
// read      what was read, and where; expected: what a healthy host has there
// why       what the fault does; fix: the command that mends it
// asks      of which speed the fault takes some; cost: how much (doctor/cost_model.h)
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "doctor/cost.h"

namespace weft::doctor {

enum class Severity { kOk, kNote, kWarn, kFail };
const char* SeverityName(Severity severity);

struct Finding {
    std::string check;
    Severity severity = Severity::kOk;
    std::string host;
    std::string read, expected, why, fix;
    std::optional<CostQuestion> asks = {};
    std::optional<Cost> cost = {};
};

// Collects the findings of one check on one host.
class Findings {
  public:
    Findings(std::string check, std::string host)
        : check_(std::move(check)), host_(std::move(host)) {}

    void Ok(std::string read, std::string expected = "") {
        Add(Severity::kOk, std::move(read), std::move(expected), "", "");
    }
    void Note(std::string read, std::string expected, std::string why, std::string fix = "") {
        Add(Severity::kNote, std::move(read), std::move(expected), std::move(why), std::move(fix));
    }
    void Warn(std::string read, std::string expected, std::string why, std::string fix) {
        Add(Severity::kWarn, std::move(read), std::move(expected), std::move(why), std::move(fix));
    }
    void Fail(std::string read, std::string expected, std::string why, std::string fix) {
        Add(Severity::kFail, std::move(read), std::move(expected), std::move(why), std::move(fix));
    }
    void Add(Severity severity, std::string read, std::string expected, std::string why,
             std::string fix);
    // Of the finding that was added last: its cost is asked for.
    void AskCost(std::optional<CostQuestion> question);

    bool empty() const { return list_.empty(); }
    size_t Count() const { return list_.size(); }
    std::vector<Finding> Take() { return std::move(list_); }

  private:
    std::string check_, host_;
    std::vector<Finding> list_;
};

}  // namespace weft::doctor
