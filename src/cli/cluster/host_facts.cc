#include "cli/cluster/host_facts.h"

#include "gpu/cards.h"
#include "hw/cpu.h"

namespace weft::cli {

fleet::SelfFacts OwnFacts(uint16_t port) {
    fleet::SelfFacts facts;
    facts.name = fleet::OwnName();
    facts.memory_bytes = TotalMemoryBytes();
    facts.port = port;
    for (const gpu::Card& card : gpu::ListCards().cards) {
        const gpu::Description& one = card.best();
        // (A software GPU does not count.)
        if (!one.unusable.empty() || one.kind == gpu::Kind::kCpu) continue;
        facts.device += (facts.device.empty() ? "" : ", ") + one.name;
    }
    if (facts.device.empty()) facts.device = DetectCpu().model;
    return facts;
}

}  // namespace weft::cli
