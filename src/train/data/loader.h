// Makes batches of training sequences: reads the samples of one part in a seeded order, cuts them
// to a length, packs them, and distributes them to data-parallel ranks. Can resume at any batch.
//
// A sample of L tokens fills L - 1 positions: position i holds token i; its target is token i + 1,
// or -1 if that token has no loss. A sequence has S positions: one or more samples in a row, then
// padding with targets of -1. `begins` has the starts of the samples: attention must not cross a
// start, and positions restart there. Without packing, a sequence has one sample.
//
// Order: every epoch has its own permutation of all samples (random.h, without memory). Packing
// considers a window of samples that fill about 64 sequences. It places the samples, longest first,
// each in the sequence with the least sufficient space, and emits the sequences in the order of
// their first samples. The list of sequences depends only on the seed, for any number of ranks:
// batch g has the sequences [g B, (g + 1) B), and rank r of n gets the r-th share of each batch. To
// form the list, every rank tokenizes every sample; docs/train-data.md states the cost.
//
// The answers of a preference (Sample::roles) are one sequence, each with at most S positions.
// Preferences are not packed.
//
// Empty sequences fill up the last batch of the last epoch.
//
// Memory: one window, some 64 S positions and the longest sample; see CountOnly and ReadOn.
// Errors: those of DataSet (invalid records only without skip_bad); kUsage: inconsistent sizes;
// kCorrupt: an epoch without a sequence.
// Thread: one caller at a time. The DataSet must outlive the Loader.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "train/data/data_set.h"
#include "train/data/mixture.h"
#include "train/data/random.h"

namespace weft::train {

// Treatment of samples with more than S + 1 tokens.
enum class LongSamples {
    kTruncate,  // the end is cut off
    kSkip,
    kSplit,  // the rest continues in further sequences, with positions from 0
};

struct LoaderOptions {
    Part part = Part::kTrain;
    int64_t sequence = 1024;   // S
    int64_t global_batch = 1;  // B: sequences per update, over all ranks
    int rank = 0, ranks = 1;   // data-parallel
    bool pack = true, shuffle = true;
    LongSamples longs = LongSamples::kTruncate;
    bool may_split = true;  // messages may propose kSplit
    bool skip_bad = false;
    uint64_t seed = 0;
    uint64_t epochs = 0;  // 0: endless
    int32_t pad_id = 0;
    // By part: log-probabilities of a reference model, kMostAnswers for each record; or empty.
    std::array<std::span<const double>, 2> reference{};
    // Chooses the records of each epoch of the training part; empty: all of them.
    std::optional<Mixture> mixture{};
};

// The position of the next sequence. With the same data and options (except rank and ranks), it
// determines all following sequences.
struct Cursor {
    uint64_t epoch = 0;
    uint64_t index = 0;  // first sample of the window, in the epoch's order
    uint64_t given = 0;  // number of sequences of that window already returned

    bool operator==(const Cursor&) const = default;
};

struct Sequence {
    std::vector<int32_t> tokens, targets;  // S elements each; a preference may have more
    std::vector<int32_t> begins;  // starts of samples, ascending from 0; empty: only padding
    int32_t used = 0;             // positions before the padding
    // Preferences only. By position: whether the target belongs to an answer. By sample: the role,
    // and the log-probability of the reference model (0 without one).
    std::vector<uint8_t> answers;
    std::vector<SampleRole> roles;
    std::vector<double> reference;
    uint64_t record = 0;   // number of the record in the part
    double advantage = 0;  // of a completion that was generated
    double label = 0;      // Sample::label
};

struct Batch {
    std::vector<Sequence> sequences;  // this rank's sequences, in order
    uint64_t global_sequences = 0;    // non-empty sequences of all ranks
    uint64_t global_targets = 0;      // positions with loss, over all ranks
    uint64_t first = 0, all = 0;      // this rank's first place in the batch; places of all ranks
    // Preferences, over all ranks: samples of each role, and positions of chosen ones with a
    // target.
    std::array<uint64_t, kSampleRoles> samples_of{};
    uint64_t chosen_targets = 0;
};

// Whether a read failed because of the record itself, so that --skip-bad skips the record.
bool IsBadRecord(const Error& error);

struct LoaderCounts {
    uint64_t samples = 0;    // samples used in sequences
    uint64_t truncated = 0;  // kTruncate; a preference counts once
    uint64_t too_long = 0;   // kSkip
    uint64_t bad = 0;        // invalid records
    uint64_t no_loss = 0;    // skipped, because no token is learned (or remains to be learned)
    uint64_t cut_off = 0;    // of no_loss: kTruncate has cut off all learned tokens
    uint64_t needed = 0;     // shortest sequence with which a sample of too_long or cut_off is used
    uint64_t packed = 0;     // samples after the first of their (packed) record
    std::string first_bad;   // error of the first invalid record
    uint64_t left_out() const { return too_long + bad + no_loss; }
    uint64_t all() const { return samples + left_out(); }
    uint64_t records() const { return all() - packed; }
};

class Loader {
  public:
    static Result<Loader> Make(const DataSet& data, const LoaderOptions& options);

    // Returns no batch after the last epoch.
    Result<std::optional<Batch>> Next();
    // Position of the next batch.
    const Cursor& cursor() const { return cursor_; }
    // Stored with a cursor. Equal for two loaders if a cursor of one has the same meaning for the
    // other. Covers the number of samples and the options that determine the list of sequences, but
    // not the samples' text.
    uint64_t Fingerprint() const;
    // Whether this loader can continue from a cursor stored with `fingerprint`. A loader that skips
    // bad records can also continue from a cursor of a loader that does not skip them.
    bool MayGoOnFrom(uint64_t fingerprint) const;
    // Continues at the cursor. Errors: kUsage: the cursor is not a position in this data.
    Status Seek(const Cursor& cursor);
    // From now on, only counts batches: sequences are empty, targets are not counted, and each
    // sample is read and counted once, for any number of epochs. Needs 4 bytes of memory per
    // sample. Precondition: epochs > 0.
    void CountOnly();
    // From now on, samples are read on these cores, ahead of the window and about half a million
    // tokens at a time; fewer than two: on the calling thread. The batches are the same.
    void ReadOn(std::vector<int> cores) { cores_ = std::move(cores); }
    // Counts since construction; after Seek, the first window counts again.
    const LoaderCounts& counts() const { return counts_; }
    // Counts up to the end of the first epoch; empty before that.
    const std::optional<LoaderCounts>& first_epoch() const { return first_epoch_; }

  private:
    uint64_t FingerprintWith(bool skip_bad) const;
    struct Piece {
        Sample sample;   // empty with CountOnly
        uint64_t order;  // place in the window
        size_t positions;
        uint64_t record = 0;
    };

    Loader(const DataSet& data, const LoaderOptions& options) : data_(&data), options_(options) {}
    Result<std::optional<Sequence>> NextSequence();
    Error NothingToLearn() const;
    Status FillWindow();
    Status AddSample(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions);
    Status ReadRecord(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions);
    uint64_t RecordAt(uint64_t place) const;
    Status ReadAhead();
    Result<Sample> TakeRead(uint64_t index);
    void TakePreference(Sample sample, std::vector<Piece>& pieces, uint64_t& positions);
    void Count(const Sequence& sequence, Batch& batch) const;
    bool Shorten(Sample& sample);
    void TakeSample(Sample sample, std::vector<Piece>& pieces, uint64_t& positions);
    void AddPieces(Sample sample, std::vector<Piece>& pieces, uint64_t& positions);
    void Remember(uint64_t index, uint64_t positions, std::span<Piece> made);
    bool AddKnown(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions) const;
    std::vector<std::vector<Piece>> PackPieces(std::vector<Piece> pieces) const;
    Sequence Build(const std::vector<Piece>& pieces) const;
    void AddRoles(const Piece& piece, Sequence& made) const;

    const DataSet* data_;
    LoaderOptions options_;
    Cursor cursor_;
    std::optional<Permutation> order_;  // with shuffle: the records of order_epoch_
    uint64_t order_epoch_ = 0;
    std::vector<std::vector<Piece>> window_;  // sequences of the window at cursor_.index
    uint64_t window_end_ = 0;                 // first sample after the window
    bool filled_ = false;
    std::vector<int> cores_;
    // Samples read ahead: the samples at positions from ahead_begin_ of an epoch on; empty: the
    // sample's size is known.
    std::deque<std::optional<Result<Sample>>> ahead_;
    uint64_t ahead_epoch_ = 0, ahead_begin_ = 0;
    uint64_t ahead_records_ = 0, ahead_tokens_ = 0;  // read so far
    bool found_ = false;                             // the epoch has a sequence
    LoaderCounts counts_;
    std::optional<LoaderCounts> first_epoch_;
    bool counts_only_ = false;
    // With CountOnly, by record: kUnknown, or the record's number of positions plus one (kLeftOut:
    // it has none). If its pieces are not those of one learned sample, because some are not learned
    // or the record is packed, partly_ has their positions.
    static constexpr uint32_t kUnknown = 0, kLeftOut = 1;
    std::vector<uint32_t> known_;
    std::unordered_map<uint64_t, std::vector<uint32_t>> partly_;
};

}  // namespace weft::train
