// weft plan --want 20tok/s --budget 8000EUR: finds machines that meet the conditions.
#include <fmt/format.h>

#include "cli/plan/plan.h"
#include "plan/backwards.h"

namespace weft::cli {
namespace {

constexpr size_t kMostOffers = 12;  // in the table

Json OfferJson(const plan::Offer& offer) {
    Json json = {{"machines", offer.machines},        {"layout", offer.best.name},
                 {"answer_s", offer.best.answer_s},   {"answer_s_spread", offer.best.answer_spread},
                 {"tok_s", offer.best.tok_s},         {"tok_s_spread", offer.best.spread},
                 {"ttft_s", offer.best.ttft_s},       {"price", offer.price},
                 {"price_is_guessed", offer.guessed}, {"joules_per_token", nullptr}};
    if (offer.best.joules_per_token) json["joules_per_token"] = *offer.best.joules_per_token;
    return json;
}

Json OffersJson(const std::vector<plan::Offer>& offers) {
    Json json = Json::array();
    for (const plan::Offer& offer : offers) json.push_back(OfferJson(offer));
    return json;
}

void PrintOfferTable(const std::vector<plan::Offer>& offers) {
    PrintOut("{:<34} {:<12} {:>9} {:>15} {:>9} {:>12} {:>8}\n", "machines", "layout", "answer",
             "tok/s", "TTFT", "price", "J/token");
    const size_t shown = std::min(offers.size(), kMostOffers);
    for (size_t i = 0; i < shown; ++i) {
        const plan::Offer& offer = offers[i];
        const plan::Prediction& p = offer.best;
        PrintOut("{:<34} {:<12} {:>9} {:>15} {:>9} {:>12} {:>8}\n", offer.machines, p.name,
                 SecondsText(p.answer_s), RateText(p.tok_s, p.spread), SecondsText(p.ttft_s),
                 fmt::format("{}{:.0f}", offer.guessed ? "~" : "", offer.price),
                 p.joules_per_token ? fmt::format("{:.1f}", *p.joules_per_token) : "-");
    }
    if (shown < offers.size()) PrintOut("({} more: --json has all)\n", offers.size() - shown);
}

Result<plan::Wanted> WantedOf(const PlanFlags& flags) {
    plan::Wanted wanted;
    const auto read = [](const char* flag, const std::string& text, plan::Unit unit,
                         double& value) -> Status {
        const auto parsed = plan::ParseQuantity(text, unit);
        if (!parsed.ok()) {
            return MakeError(ErrorCode::kUsage, "{}: {}", flag, parsed.error().message);
        }
        value = *parsed;
        return {};
    };
    if (!flags.want.empty()) {
        WEFT_TRY(read("--want", flags.want, plan::Unit::kSpeed, wanted.tok_s));
    }
    if (!flags.budget.empty()) {
        WEFT_TRY(read("--budget", flags.budget, plan::Unit::kPrice, wanted.budget.emplace()));
    }
    if (!flags.ttft.empty()) {
        WEFT_TRY(read("--ttft", flags.ttft, plan::Unit::kTime, wanted.ttft_s.emplace()));
    }
    return wanted;
}

}  // namespace

Status PrintOffers(const PlanFlags& flags, const PlanRun& run) {
    WEFT_ASSIGN(const plan::Wanted wanted, WantedOf(flags));
    WEFT_ASSIGN(const plan::Offers offers, plan::FindMachines(run.shape.walk, run.library,
                                                              flags.load, wanted, flags.machines));
    if (flags.json) {
        PrintJson({{"model", flags.model},
                   {"note", run.shape.note},
                   {"prompt", flags.load.prompt},
                   {"answer", flags.load.answer},
                   {"enough", OffersJson(offers.enough)},
                   {"nearest", OffersJson(offers.nearest)}});
        return {};
    }
    if (!offers.enough.empty()) {
        PrintOfferTable(offers.enough);
        PrintOut("answer: {}\n", AnswerWords(flags.load));
        PrintOut("Prices with ~ are guessed (machines/): put yours into a machine file.\n");
    } else if (!offers.nearest.empty()) {
        PrintOut("None does it. The closest{}:\n",
                 flags.budget.empty() ? "" : " within the budget");
        PrintOfferTable(offers.nearest);
    } else {
        PrintOut("No machine with a price holds the model within that.\n");
    }
    if (!run.shape.note.empty()) PrintOut("note: {}\n", run.shape.note);
    return {};
}

}  // namespace weft::cli
