#include "doctor/finding.h"

#include "base/check.h"

namespace weft::doctor {

const char* SeverityName(Severity severity) {
    switch (severity) {
        case Severity::kOk: return "ok";
        case Severity::kNote: return "note";
        case Severity::kWarn: return "warn";
        case Severity::kFail: return "fail";
    }
    WEFT_CHECK(false);
}

void Findings::Add(Severity severity, std::string read, std::string expected, std::string why,
                   std::string fix) {
    list_.push_back({check_, severity, host_, std::move(read), std::move(expected), std::move(why),
                     std::move(fix)});
}

void Findings::AskCost(std::optional<CostQuestion> question) {
    WEFT_CHECK(!list_.empty());
    list_.back().asks = std::move(question);
}

}  // namespace weft::doctor
