// Batches of sequences for training: the samples of one part in a seeded order, cut to a length,
// packed, dealt out to data-parallel ranks, and resumable at any batch.
//
// A sample of L tokens fills L - 1 positions: position i holds token i and has token i + 1 as its
// target, or -1 where that has no loss. A sequence has S positions: one or more samples one after
// the other (attention must not cross `begins`, and positions count from each of them anew), then
// padding with targets of -1. Without packing there is one sample a sequence.
//
// Order: every epoch is a permutation of its own of all samples (random.h: no memory). Packing
// looks at a window of samples that fill some 64 sequences, puts the longest first where they fit
// tightest, and gives the sequences out in the order of their first samples. All of it depends on
// the seed alone: batch g is sequences [g B, (g + 1) B) of one list, whatever the ranks are, and
// rank r of n takes the r-th share of it. For that every rank tokenizes every sample; what it costs
// is in docs/train-data.md.
//
// After the last epoch the list is filled up with empty sequences to a whole batch.
//
// Memory: one window, some 64 S positions and the longest sample; see CountOnly.
// Errors: those of DataSet; of records that can't be used only where they are not skipped; kUsage:
// sizes that make no sense; kCorrupt: an epoch without a single sequence.
// Thread: one caller at a time. Borrows the DataSet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "train/data/data_set.h"

namespace weft::train {

// What becomes of samples of more than S + 1 tokens.
enum class LongSamples {
    kTruncate,  // the end is cut off
    kSkip,
    kSplit,  // they go on in further sequences, which begin anew
};

struct LoaderOptions {
    Part part = Part::kTrain;
    int64_t sequence = 1024;   // S
    int64_t global_batch = 1;  // B: sequences an update, over all ranks
    int rank = 0, ranks = 1;   // data-parallel ones
    bool pack = true, shuffle = true;
    LongSamples longs = LongSamples::kTruncate;
    bool skip_bad = false;
    uint64_t seed = 0;
    uint64_t epochs = 0;  // 0: without end
    int32_t pad_id = 0;
};

// Where the next sequence comes from. The sequence after it is known from this alone, for the same
// options (ranks may differ) and the same data.
struct Cursor {
    uint64_t epoch = 0;
    uint64_t index = 0;  // the first sample of the window, in the epoch's order
    uint64_t given = 0;  // sequences of that window which were given out

    bool operator==(const Cursor&) const = default;
};

struct Sequence {
    std::vector<int32_t> tokens, targets;  // S each
    std::vector<int32_t> begins;           // where samples begin, ascending from 0; empty: padding
    int32_t used = 0;                      // positions before the padding
};

struct Batch {
    std::vector<Sequence> sequences;  // this rank's, in order
    uint64_t global_sequences = 0;    // of all ranks, those that are not empty
    uint64_t global_targets = 0;      // positions with loss, over all ranks
};

struct LoaderCounts {
    uint64_t samples = 0;    // that went into sequences
    uint64_t truncated = 0;  // kTruncate
    uint64_t too_long = 0;   // kSkip
    uint64_t bad = 0;        // records that can't be used
    uint64_t no_loss = 0;    // nothing (left) to learn: left out
    std::string first_bad;   // the error of the first of them
    uint64_t left_out() const { return too_long + bad + no_loss; }
    uint64_t records() const { return samples + left_out(); }
};

class Loader {
  public:
    static Result<Loader> Make(const DataSet& data, const LoaderOptions& options);

    // Empty after the last epoch.
    Result<std::optional<Batch>> Next();
    // Of the next batch.
    const Cursor& cursor() const { return cursor_; }
    // The same for two loaders whose cursors mean the same: to be kept beside a cursor. Of the
    // options that the list of sequences depends on and the number of samples; not of their text.
    uint64_t Fingerprint() const;
    // Whether a cursor that was kept beside this fingerprint means the same here. Who leaves bad
    // records out goes on from where there were none, too.
    bool MayGoOnFrom(uint64_t fingerprint) const;
    // Goes on from there. kUsage: not a place of this data.
    Status Seek(const Cursor& cursor);
    // To know how many batches there are: from here on sequences are empty, targets are not
    // counted, and each sample is read once, and counted once, however many epochs follow. Then
    // 4 bytes a sample are kept. Precondition: epochs > 0.
    void CountOnly();
    // Since the loader was made; after Seek its first window counts again.
    const LoaderCounts& counts() const { return counts_; }
    // Those up to the first end of an epoch; empty before.
    const std::optional<LoaderCounts>& first_epoch() const { return first_epoch_; }

  private:
    uint64_t FingerprintWith(bool skip_bad) const;
    struct Piece {
        Sample sample;   // empty with CountOnly
        uint64_t order;  // place in the window
        size_t positions;
    };

    Loader(const DataSet& data, const LoaderOptions& options) : data_(&data), options_(options) {}
    Result<std::optional<Sequence>> NextSequence();
    Status FillWindow();
    Status AddSample(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions);
    Status ReadSample(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions);
    void AddPieces(Sample sample, std::vector<Piece>& pieces, uint64_t& positions);
    void Remember(uint64_t index, uint64_t positions, std::span<Piece> made);
    bool AddKnown(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions) const;
    std::vector<std::vector<Piece>> PackPieces(std::vector<Piece> pieces) const;
    Sequence Build(const std::vector<Piece>& pieces) const;

    const DataSet* data_;
    LoaderOptions options_;
    Cursor cursor_;
    std::vector<std::vector<Piece>> window_;  // the sequences of the window at cursor_.index
    uint64_t window_end_ = 0;                 // the first sample behind it
    bool filled_ = false;
    bool found_ = false;  // the epoch had a sequence
    LoaderCounts counts_;
    std::optional<LoaderCounts> first_epoch_;
    bool counts_only_ = false;
    // With CountOnly, by sample: kUnknown, or its positions and one (kLeftOut: none). Where not all
    // of its pieces are learnt from, those that are have their positions in partly_.
    static constexpr uint32_t kUnknown = 0, kLeftOut = 1;
    std::vector<uint32_t> known_;
    std::unordered_map<uint64_t, std::vector<uint32_t>> partly_;
};

}  // namespace weft::train
