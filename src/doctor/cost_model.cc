#include "doctor/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace weft::doctor {
namespace {

// Known models, the largest first.
constexpr const char* kModels[] = {
    "deepseek-r1:q4_k_m",   "qwen3-235b-a22b:q4_k_m", "gpt-oss-120b",
    "llama-3.3-70b:q4_k_m", "qwen3-32b:q4_k_m",       "qwen3-14b:q4_k_m",
    "qwen3-8b:q4_k_m",      "qwen3-4b:q4_k_m",        "qwen3-0.6b:q4_k_m"};

// Machine used for a host of unknown speed. Only times on links are stated, which do not depend on
// it.
constexpr const char* kStandIn = "strix-halo";
// Share of system memory that a model can use.
constexpr double kShareForModels = 0.9;
// A link slower than this was misread.
constexpr double kLeastBytes = 1e3;

std::optional<plan::Wire> WireOfLink(const plan::Library& library, const HostLink& link) {
    plan::Wire wire;
    wire.name = "measured";
    wire.latency.value = link.latency_s;
    wire.bandwidth.value = link.most_bytes_s;
    if (link.gigabits > 0) {
        const auto known = plan::WireOf(library, link.kind, link.gigabits);
        if (!known.ok()) return std::nullopt;
        wire = *known;
        if (link.latency_s > 0) wire.latency.value = link.latency_s;
        const double most = link.most_bytes_s > 0 ? link.most_bytes_s : wire.bandwidth.value;
        wire.bandwidth.value = std::min(wire.bandwidth.value, most);
    }
    wire.bandwidth.value *= link.share;
    if (!(wire.bandwidth.value >= kLeastBytes && wire.latency.value > 0)) return std::nullopt;
    wire.latency.value += link.waits_s;
    return wire;
}

CostFigures FiguresOf(const plan::Prediction& prediction, const std::string& model, bool speed) {
    CostFigures figures;
    figures.model = model;
    figures.wire_token_s = prediction.token.wire + prediction.token.sync;
    figures.wire_prompt_s = prediction.prompt.wire + prediction.prompt.sync;
    if (!speed) return figures;
    figures.tokens_s = prediction.tok_s;
    figures.prompt_s = prediction.ttft_s;
    return figures;
}

}  // namespace

Result<CostModel> CostModel::Open() {
    CostModel model;
    WEFT_ASSIGN(model.library_, plan::Library::Open());
    return model;
}

std::optional<plan::Machine> CostModel::MachineOf(const HostFacts& host) const {
    for (const auto& [id, count] : host.gpus) {
        auto machine = library_.MachineWith(id, count);
        if (!machine) continue;
        const double unified = host.unified_bytes * kShareForModels;
        if (unified > 0) machine->memory.value = std::min(machine->memory.value, unified);
        return machine;
    }
    return std::nullopt;
}

std::optional<plan::ClusterSpec> CostModel::ClusterOf(const HostFacts& host,
                                                      const HostState& state) const {
    auto machine = MachineOf(host);
    if (!machine) {
        auto other = library_.FindMachine(kStandIn);
        if (!other.ok() || !state.link || host.memory_bytes <= 0) return std::nullopt;
        machine = std::move(*other);
        machine->memory.value = host.memory_bytes * kShareForModels;
    }
    if (state.space_bytes > 0) machine->memory.value = state.space_bytes;
    machine->bandwidth.value *= state.bandwidth_share;
    plan::ClusterSpec cluster;
    cluster.hosts = {*machine};
    if (!state.link) {
        cluster.words = machine->name;
        return cluster;
    }
    const auto wire = WireOfLink(library_, *state.link);
    if (!wire) return std::nullopt;
    cluster.hosts.push_back(*machine);
    cluster.wire = *wire;
    cluster.words = fmt::format("2x{},{}", machine->name, wire->name);
    return cluster;
}

const plan::OpenedShape* CostModel::Shape(const std::string& name) {
    auto found = shapes_.find(name);
    if (found == shapes_.end()) {
        auto opened = plan::OpenWalk(name);
        if (!opened.ok()) return nullptr;
        found = shapes_.emplace(name, std::move(*opened)).first;
    }
    return &found->second;
}

std::optional<plan::Prediction> CostModel::Predicted(const std::string& model,
                                                     const plan::ClusterSpec& cluster) {
    const plan::OpenedShape* shape = Shape(model);
    if (shape == nullptr) return std::nullopt;
    const double room = cluster.hosts[0].memory.value * cluster.ranks();
    if (static_cast<double>(shape->source->TotalBytes()) > room) return std::nullopt;
    model::Layout layout;
    layout.tp = cluster.ranks();
    auto prediction = plan::Predict(shape->walk, cluster, layout, load());
    if (!prediction.ok() || !prediction->fits()) return std::nullopt;
    return std::move(*prediction);
}

// The largest model that fits the cluster; sets `model` to its name.
std::optional<plan::Prediction> CostModel::Fitting(const plan::ClusterSpec& cluster,
                                                   std::string& model) {
    for (const char* name : kModels) {
        if (auto prediction = Predicted(name, cluster)) {
            model = name;
            return prediction;
        }
    }
    return std::nullopt;
}

std::optional<Cost> CostModel::Answer(const CostQuestion& question) {
    const auto faulty = ClusterOf(question.host, question.faulty);
    const auto healthy = ClusterOf(question.host, question.healthy);
    if (!faulty || !healthy) return std::nullopt;
    std::string model;
    const auto expected = Fitting(*healthy, model);
    if (!expected) return std::nullopt;
    Cost cost;
    const auto machine = MachineOf(question.host);
    if (machine) cost.machine = machine->name;
    cost.hosts = expected->hosts;
    cost.tensor_ranks = expected->layout.tp;
    cost.context = load().context;
    cost.prompt = load().prompt_tokens();
    const bool speed = machine.has_value();
    cost.healthy = FiguresOf(*expected, model, speed);
    auto actual = Predicted(model, *faulty);
    if (!actual) actual = Fitting(*faulty, model);
    if (actual) cost.faulty = FiguresOf(*actual, model, speed);
    return cost;
}

Status StateCosts(std::span<Finding> findings) {
    const auto asks = [](const Finding& finding) { return finding.asks.has_value(); };
    if (std::ranges::none_of(findings, asks)) return {};
    WEFT_ASSIGN(CostModel model, CostModel::Open());
    std::vector<const Finding*> answered;
    for (Finding& finding : findings) {
        if (!finding.asks) continue;
        const auto same = std::ranges::find_if(
            answered, [&](const Finding* other) { return other->asks == finding.asks; });
        finding.cost = same != answered.end() ? (*same)->cost : model.Answer(*finding.asks);
        answered.push_back(&finding);
    }
    return {};
}

}  // namespace weft::doctor
