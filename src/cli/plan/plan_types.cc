// weft plan: the default weight type, and the largest type that fits.
#include <fmt/format.h>

#include "cli/plan/plan.h"

namespace weft::cli {

std::string TypeNote(const PlanFlags& flags, const plan::OpenedShape& shape) {
    if (flags.typed != flags.model) {
        const std::string type = flags.typed.substr(flags.typed.rfind(':') + 1);
        return fmt::format("no type is named: {}, the usual one, is assumed", type);
    }
    const bool named =
        flags.model.find(':', flags.model.starts_with("hf:") ? 3 : 0) != flags.model.npos;
    if (!shape.is_shape || named || shape.source->MainType() != "BF16") return {};
    return fmt::format("no type is named: BF16 is assumed; {} plans a file of 4 bits",
                       WithType(flags.model, "q4_k_m"));
}

std::string TypeThatFits(const PlanFlags& flags, const PlanRun& run,
                         const plan::ClusterSpec& cluster) {
    if (!run.shape.is_shape) return {};
    for (const char* type :
         {"q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k", "iq2_xxs", "iq1_s"}) {
        const std::string word = WithType(flags.typed, type);
        const auto smaller = plan::OpenWalk(word, run.shape.walk.kv_dtype(), flags.head);
        if (!smaller.ok()) continue;
        if (smaller->source->TotalBytes() >= run.shape.source->TotalBytes()) continue;
        if (plan::FindBest(smaller->walk, cluster, flags.load).ok()) return word;
    }
    return {};
}

}  // namespace weft::cli
