// A Finding is one result of a check for one host or a pair of hosts.
//
// severity  ok    as expected
//           note  worth knowing; not certain to be slow or broken
//           warn  costs speed, or will under load
//           fail  does not work, or at a fraction of the hardware's speed: exit status 1
// read      the value that was found, and its source
// expected  the value on a healthy host
// why       effect of the fault
// fix       command that repairs the fault
// asks      question: how much speed the fault costs
// cost      answer to that question (doctor/cost_model.h)
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "doctor/cost.h"

namespace weft::doctor {

enum class Severity { kOk, kNote, kWarn, kFail };
inline const char* SeverityName(Severity severity) {
    constexpr const char* kNames[] = {"ok", "note", "warn", "fail"};
    return kNames[static_cast<size_t>(severity)];
}

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
    // view: the host to which fixes apply; for a check across hosts, one of the hosts.
    Findings(std::string check, std::string host, HostView* view = nullptr)
        : check_(std::move(check)), host_(std::move(host)), view_(view) {}

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
             std::string fix) {
        list_.push_back({check_, severity, host_, std::move(read), std::move(expected),
                         std::move(why), std::move(fix)});
    }
    // Asks for the cost of the finding that was added last.
    void EstimateCost(std::optional<CostQuestion> question) {
        WEFT_CHECK(!list_.empty());
        list_.back().asks = std::move(question);
    }

    HostView& view() const { return *view_; }
    bool empty() const { return list_.empty(); }
    size_t Count() const { return list_.size(); }
    std::vector<Finding> Take() { return std::move(list_); }

  private:
    std::string check_, host_;
    HostView* view_;
    std::vector<Finding> list_;
};

}  // namespace weft::doctor
