// One rank's training Program, for any kind of model, layout and optimizer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "support/tiny_model.h"
#include "train/graph.h"
#include "train/lora/lora.h"
#include "train/update/add.h"

namespace weft::support {

struct TrainingCase {
    const char* architecture = "llama";
    bool tied = false, experts = false;
    DType weights = DType::kF32;  // of the model's file
    DType dtype = DType::kF32, gradients = DType::kF32;
    program::Recompute recompute = program::Recompute::kNone;
    program::ZeroOptions zero{};
    // shard: the rank's first of tp * pp * chunks.
    int tp = 1, pp = 1, shard = 0, chunks = 1;
    bool row_shares = false, balance = false, lora = false;
    float scale = 1, cap = 0;  // of logits
    const char* optimizer = "adamw";
    bool momentum = false, beside = false;
    int64_t rows = 40, logits_bytes = 1;  // pieces of 32 rows
    int slots = 3;
    float temperature = 0;  // of queries, from position 8 on
    LossTerms terms{};
    bool noise = false;
    int cp = 1;
    program::Target target{};
    int64_t head_dim = 0;  // 0: the tiny model's

    std::string Name() const {
        return fmt::format("{}{}{} {} {} zero {}/{} tp {} pp {} {}", architecture,
                           experts ? " experts" : "", lora ? " lora" : "", Info(weights).name,
                           Info(dtype).name, zero.stage, zero.ranks, tp, pp, optimizer);
    }
    // Rows of a block type are a multiple of 32.
    model::Hyper hyper() const {
        model::Hyper h = experts ? TinyExpertHyper(architecture) : TinyHyper(architecture, tied);
        h.logit_scale = scale;
        h.logit_cap = cap;
        h.temperature.beta = temperature;
        h.temperature.length = 8;
        if (head_dim > 0) h = WithHeadDim(h, head_dim);
        h.layers = 2 * pp * chunks;
        if (h.architecture == "granite") {
            h.embedding_scale = 3;
            h.residual_scale = 0.4f;
            h.attention_scale = 0.3f;
        }
        if (!Info(weights).quantized) return h;
        h.hidden = h.ffn = h.moe.ffn = 64;
        h.heads = 4;
        h.kv_heads = 2;
        h.head_dim = 16;
        SetRope(h, 100);
        return h;
    }
    train::GraphOptions graph(const train::LoraPlan& plan) const {
        train::GraphOptions options;
        options.dtype = dtype;
        options.gradients = gradients;
        options.recompute = recompute;
        options.zero = zero;
        options.zero.unit_elements = 900;
        options.zero.grain = train::UnitGrainOf(*train::FindUpdate(optimizer));
        options.lora = lora ? &plan : nullptr;
        options.rows = rows;
        options.row_shares = row_shares;
        options.context_ranks = cp;
        options.load_balance = balance;
        options.loss = terms;
        options.noise = noise;
        options.target = target;
        options.target.logits_bytes = logits_bytes;
        return options;
    }
    backend::CompileOptions compile() const {
        backend::CompileOptions options;
        options.max_tokens = options.max_outputs = rows;
        options.compute = dtype;
        options.slots = slots;
        options.beside = beside;
        return options;
    }
};

class TrainingRank {
  public:
    explicit TrainingRank(const TrainingCase& c)
        : hyper_(c.hyper()),
          source_(hyper_, c.weights == DType::kF32 ? std::nullopt : std::optional(c.weights)) {
        if (c.lora) lora_ = Adapters();
        const auto plan = model::PlanShards(
            hyper_, source_,
            model::MakeLayout(c.tp * c.pp * c.chunks, c.tp, c.pp * c.chunks, {}).value());
        EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.error().message;
        if (!plan.ok()) return;
        std::vector<model::Shard> shards;
        for (int i = 0; i < c.chunks; ++i) {
            shards.push_back(plan->shards[static_cast<size_t>(c.shard + i * c.tp * c.pp)]);
        }
        auto graph = train::BuildTrainingGraph(hyper_, shards, source_, c.graph(lora_));
        EXPECT_TRUE(graph.ok()) << c.Name() << ": " << graph.error().message;
        if (!graph.ok()) return;
        program_ = std::move(graph->program);
        units_ = std::move(graph->units);
        AddUpdate(c);
    }

    const program::ChunkedProgram& program() const { return program_; }
    const std::vector<program::FlatBucket>& units() const { return units_; }
    // The compiled Program with the model's weights, which are float32 without adapters.
    std::unique_ptr<backend::Executable> Load(backend::Device& device,
                                              const backend::CompileOptions& options) {
        auto executable = device.Compile(program_, options);
        EXPECT_TRUE(executable.ok()) << executable.error().message;
        const Status loaded = state_.Load(**executable, source_, *cluster_);
        EXPECT_TRUE(loaded.ok()) << loaded.error().message;
        return std::move(*executable);
    }

  private:
    // Adapters for the matrices of all layers, except experts and routers.
    train::LoraPlan Adapters() const {
        train::LoraPlan plan;
        plan.words.rank = 4;
        for (const model_files::TensorInfo& info : source_.tensors()) {
            const bool router = info.name.find("ffn_gate_inp") != std::string::npos;
            if (!info.name.starts_with("blk.") || info.dim_count != 2 || router) continue;
            train::LoraTarget target;
            target.tensor = target.module = info.name;
            target.rows = info.rows;
            target.cols = info.cols;
            target.rank = plan.words.rank;
            target.scale = 4;
            plan.targets.push_back(target);
        }
        return plan;
    }
    void AddUpdate(const TrainingCase& c) {
        cluster_ = cluster::Cluster::Launch({}, "").value();
        EXPECT_TRUE(state_.Agree(units_, *cluster_, 0).ok());
        train::UpdateOptions update;
        update.kind = *train::FindUpdate(c.optimizer);
        update.momentum = c.momentum ? 0.9 : 0;
        const bool several = c.zero.ranks * c.tp * c.pp > 1;
        const bool float64_sums = c.target.float64_sums;
        rule_ = train::MakeUpdateRule(update, {state_, source_, several, true, float64_sums});
        train::AddUpdate(program_, state_, *rule_,
                         {c.zero.ranks > 1, c.pp > 1 && c.tied, several, float64_sums});
    }

    model::Hyper hyper_;
    TinySource source_;
    train::LoraPlan lora_;
    program::ChunkedProgram program_;
    std::vector<program::FlatBucket> units_;
    std::unique_ptr<cluster::Cluster> cluster_;
    train::TrainState state_;
    std::unique_ptr<train::UpdateRule> rule_;
};

}  // namespace weft::support
