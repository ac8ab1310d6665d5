// One rank's Program, compiled for a device and loaded from a source, and steps of one sequence.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "model/load.h"
#include "model/model.h"

namespace weft::support {

// A group in which the ranks are both the tensor group and the stages.
struct OneGroup {
    explicit OneGroup(coll::Comm& comm) : links(comm), groups{&comm, &links} {}
    backend::CommLinks links;
    backend::Communicators groups;
};

class LoadedRank {
  public:
    LoadedRank(const program::Program& program, const model_files::ModelSource& source,
               const backend::CpuOptions& options, int64_t chunk = 64,
               backend::Overlap overlap = backend::Overlap::kNever, uint64_t drive_memory = 0)
        : LoadedRank(backend::MakeCpuDevice(options), program, source, chunk, overlap,
                     drive_memory) {}
    LoadedRank(std::shared_ptr<backend::Device> device, const program::Program& program,
               const model_files::ModelSource& source, int64_t chunk = 64,
               backend::Overlap overlap = backend::Overlap::kNever, uint64_t drive_memory = 0)
        : device_(std::move(device)), program_(program) {
        backend::CompileOptions compile;
        compile.max_tokens = chunk;
        compile.max_outputs = chunk;
        compile.kv_pages = kPages;
        if (program::SlotBytes(program) > 0) compile.state_slots = 4;
        compile.overlap = overlap;
        compile.drive_memory = drive_memory;
        logits_ = program.Find("logits");
        if (logits_ == program::kNoValue) logits_ = program.Find("hidden");  // of an encoder
        if (logits_ != program::kNoValue) compile.keep = {logits_};
        auto compiled = device_->Compile({program}, compile);
        if (!compiled.ok()) ADD_FAILURE() << compiled.error().message;
        executable_ = std::move(compiled).value();
        for (size_t i = 0; i < program.values.size(); ++i) {
            if (program.values[i].storage == program::Storage::kWeight) Load(source, i);
        }
    }

    // Runs tokens at `position` with logits of every row; pages are in a shuffled order.
    Status Run(std::span<const int32_t> tokens, int64_t position,
               const backend::Communicators& groups) {
        std::vector<int32_t> pages = {2, 0, 3, 1};
        std::vector<int32_t> positions(tokens.size()), rows(tokens.size());
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(position));
        std::iota(rows.begin(), rows.end(), 0);
        std::vector<backend::StepSequence> sequences = {
            {0, static_cast<int32_t>(tokens.size()), static_cast<int32_t>(position), pages}};
        sequences[0].state_from = position > 0 ? 0 : -1;
        sequences[0].state_to = 0;
        sequences[0].second = second_;
        return executable_->Run(executable_->whole(), {++step_, tokens, positions, sequences, rows},
                                groups);
    }

    // Logits of all tokens, in steps of `piece` tokens.
    std::vector<float> Logits(std::span<const int32_t> tokens, size_t piece,
                              const backend::Communicators& groups = {}) {
        const size_t vocab = static_cast<size_t>(program_.value(logits_).shape[1]);
        std::vector<float> all(tokens.size() * vocab);
        for (size_t at = 0; at < tokens.size(); at += piece) {
            const size_t count = std::min(piece, tokens.size() - at);
            const Status status = Run(tokens.subspan(at, count), static_cast<int64_t>(at), groups);
            EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
            if (!status.ok()) return {};
            const auto out = std::span(all).subspan(at * vocab, count * vocab);
            EXPECT_TRUE(executable_->ReadFloats(logits_, 0, out).ok());
        }
        return all;
    }

    // The first position of the second text of a pair (StepSequence::second), in all later steps.
    void set_second(int32_t second) { second_ = second; }
    backend::Executable& executable() { return *executable_; }
    // Loads the weight of value `index`.
    void Load(const model_files::ModelSource& source, size_t index) {
        const program::Value& value = program_.values[index];
        const Status status = executable_->LoadWeight(
            static_cast<program::ValueId>(index),
            [&](int64_t row, int64_t count, std::span<std::byte> out) {
                return model::ReadWeight(source, value, row, count, out, nullptr);
            });
        ASSERT_TRUE(status.ok()) << status.error().message;
    }

  private:
    static constexpr int64_t kPages = 8;

    std::shared_ptr<backend::Device> device_;
    program::Program program_;
    std::unique_ptr<backend::Executable> executable_;
    program::ValueId logits_ = program::kNoValue;
    int64_t step_ = 0;
    int32_t second_ = -1;
};

}  // namespace weft::support
