// Helpers for checkpoint tests: arrays with known elements, cut at random, and saved by one writer
// per rank.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "train/checkpoint/reader.h"
#include "train/checkpoint/writer.h"

namespace weft::train {

// Element (row, col) of an array at a step; all elements of a test differ.
inline float ElementAt(const Array& array, int64_t step, int64_t row, int64_t col) {
    const auto seed = static_cast<uint32_t>(std::hash<std::string>()(array.Name()));
    const auto bits = (seed ^ static_cast<uint32_t>(step * 7919)) +
                      static_cast<uint32_t>(row * array.cols + col) * 2654435761u;
    return static_cast<float>(bits >> 8);
}

inline std::vector<float> Values(const Array& array, int64_t step, const TensorRegion& r) {
    std::vector<float> values;
    for (int64_t i = r.begin; i < r.end; ++i) {
        values.push_back(
            ElementAt(array, step, r.row_begin + i / r.col_count, r.col_begin + i % r.col_count));
    }
    return values;
}

// Draws from 0 to `most`.
inline int64_t Draw(std::mt19937& random, int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
}

// 0, some positions in between, size.
inline std::vector<int64_t> Cuts(std::mt19937& random, int64_t size, int64_t most) {
    std::vector<int64_t> cuts = {0, size};
    for (int64_t i = Draw(random, most); i > 0 && size > 1; --i) {
        cuts.push_back(1 + Draw(random, size - 2));
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
}

// Cuts as tensor parallelism by rows and columns, and ZeRO within each block.
inline std::vector<TensorRegion> CutUp(std::mt19937& random, const Array& array) {
    std::vector<TensorRegion> regions;
    const auto rows = Cuts(random, array.rows, 2), cols = Cuts(random, array.cols, 2);
    for (size_t r = 0; r + 1 < rows.size(); ++r) {
        for (size_t c = 0; c + 1 < cols.size(); ++c) {
            TensorRegion region{rows[r], rows[r + 1] - rows[r], cols[c], cols[c + 1] - cols[c], 0,
                                0};
            const auto flat = Cuts(random, region.row_count * region.col_count, 3);
            for (size_t f = 0; f + 1 < flat.size(); ++f) {
                region.begin = flat[f], region.end = flat[f + 1];
                regions.push_back(region);
            }
        }
    }
    return regions;
}

struct Cut {
    Array array;
    TensorRegion region;
};

// The ranks of a job: each saves its regions.
class SavingJob {
  public:
    explicit SavingJob(std::string dir) : dir_(std::move(dir)) {}

    // by_rank: regions of each rank. Writes the data of `step`.
    Result<Manifest> Write(int64_t step, const std::vector<std::vector<Cut>>& by_rank) {
        std::deque<std::vector<float>> data;
        std::deque<RankWriter> writers;
        for (size_t rank = 0; rank < by_rank.size(); ++rank) {
            std::vector<Piece> pieces;
            for (const auto& [array, region] : by_rank[rank]) {
                data.push_back(Values(array, step, region));
                pieces.push_back({array, region, std::as_bytes(std::span(data.back()))});
            }
            writers.emplace_back(dir_, static_cast<int>(rank));
            WEFT_TRY(writers.back().Start(step, std::move(pieces)));
        }
        Manifest manifest;
        manifest.step = step;
        manifest.model = "model";
        manifest.state = {{"step", step}};
        for (RankWriter& writer : writers) {
            WEFT_ASSIGN(const CheckpointFile file, writer.Finish());
            WEFT_ASSIGN(CheckpointFile travelled, ParseFile(FileText(file), "rank"));
            EXPECT_EQ(travelled, file);
            manifest.files.push_back(std::move(travelled));
        }
        for (const auto& cuts : by_rank) {
            for (const auto& [array, region] : cuts) {
                const auto same = [&a = array](const Array& b) { return a == b; };
                if (std::ranges::none_of(manifest.arrays, same)) manifest.arrays.push_back(array);
            }
        }
        return manifest;
    }
    Status Save(int64_t step, const std::vector<std::vector<Cut>>& by_rank, int keep = 0) {
        WEFT_ASSIGN(Manifest manifest, Write(step, by_rank));
        return CommitCheckpoint(dir_, std::move(manifest), keep);
    }

  private:
    std::string dir_;
};

// Two ranks, two arrays: small, but each file has several pieces.
inline std::vector<std::vector<Cut>> TwoRanks() {
    const Array weight{"weight", "blk.0.attn_q.weight", 6, 8, SafeType::kF32};
    const Array moment{"adam_m", "blk.0.attn_q.weight", 6, 8, SafeType::kF32};
    return {{{weight, {0, 6, 0, 4, 0, 24}}, {moment, {0, 6, 0, 8, 0, 20}}},
            {{weight, {0, 6, 4, 4, 0, 24}}, {moment, {0, 6, 0, 8, 20, 48}}}};
}

// The error of reading everything, or ""; checks that the data are of the checkpoint's step.
inline std::string ReadAll(const Checkpoint& checkpoint) {
    for (const Array& array : checkpoint.manifest().arrays) {
        const TensorRegion all = TensorRegion::Whole(array);
        std::vector<float> got(static_cast<size_t>(all.elements()), -1);
        const Status read = checkpoint.Read(array.kind, array.tensor, all, got);
        if (!read.ok()) return read.error().message;
        EXPECT_EQ(got, Values(array, checkpoint.manifest().step, all)) << array.Name();
    }
    return "";
}

inline std::string OpenAndReadAll(const std::string& folder) {
    const auto checkpoint = Checkpoint::Open(folder);
    return checkpoint.ok() ? ReadAll(*checkpoint) : checkpoint.error().message;
}

struct NewestCheckpoint {
    std::optional<Checkpoint> checkpoint;  // newest valid checkpoint of a job
    std::vector<std::string> skipped;      // errors of newer ones
};

inline NewestCheckpoint OpenNewest(const std::string& job_folder) {
    NewestCheckpoint newest;
    for (const std::string& folder : ListCheckpoints(job_folder, &newest.skipped)) {
        auto opened = Checkpoint::Open(folder);
        if (opened.ok()) {
            newest.checkpoint = std::move(*opened);
            break;
        }
        newest.skipped.push_back(opened.error().message);
    }
    return newest;
}

}  // namespace weft::train
