// Experts whose weights stay on the drive, for models that are larger than memory
// (CompileOptions::drive). A stack of experts keeps its place in the address space. Memory backs
// only the experts that were used most: a step brings the experts that its rows chose, and drops
// others. Weights are read past the page cache (base/file.h, DirectReads), so memory stays within
// the limit.
//
// Threads of the store read and pack while the caller computes. Each op waits only for its own
// stack, and the stacks of a choice are read in the order of their ops. Experts of a later choice
// can be read ahead while no needed ones are missing.
//
// Thread: one caller.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/executable.h"
#include "kernels/experts.h"
#include "program/program.h"

namespace weft::backend {

// Bytes to which the matrices of a stack on the drive are padded, so that each has pages of its
// own: the system's page, of 4 to 64 KiB.
int64_t DrivePage();
// Reads at a time: a drive needs several requests to reach its rate, and threads also pack what
// they read. kReaderBytes: memory of one of these threads.
inline constexpr size_t kReaders = 16;
inline constexpr int64_t kReaderBytes = 1 << 20;

class ExpertStore {
  public:
    using Pack = decltype(kernels::Kernels::pack);
    struct Options {
        Pack pack = nullptr;
        std::vector<int> cores;  // on which the threads that read run; empty: any
        std::string file;        // for errors
        int64_t timeout_ms = 0;  // time after which a drive that finishes no read counts as lost
    };
    explicit ExpertStore(Options options) : options_(std::move(options)) {}
    // Ends the process if the drive does not answer within the time limit, because a thread that
    // reads cannot be ended.
    ~ExpertStore();
    ExpertStore(const ExpertStore&) = delete;
    ExpertStore& operator=(const ExpertStore&) = delete;

    // A stack that an op of a choice of experts reads; call in the order of these ops. ids: the
    // value with the choice. name: of the weight, for errors.
    void Add(program::ValueId ids, program::ValueId weight, const std::string& name,
             const kernels::PackedStack& stack);
    bool empty() const { return stacks_.empty(); }
    // Bytes of all experts, and of the choice with the largest ones: the memory needed at least.
    int64_t TotalBytes() const;
    int64_t LeastBytes() const;
    // most_bytes: memory for experts; at least LeastBytes().
    void SetLimit(int64_t most_bytes) { most_bytes_ = most_bytes; }
    int64_t limit() const { return most_bytes_; }

    // Keeps the source, which is read during steps. Errors: none here.
    void Load(program::ValueId weight, RowSource source);
    // From here to the next Need, the experts e of the choice with begin[e] < begin[e + 1]
    // (kernels::ExpertPlan) are needed. Starts reading the missing experts, and drops reads ahead
    // that are not needed. Errors: kIo (no threads), kTimeout.
    Status Need(program::ValueId ids, const int32_t* begin);
    // Waits until the needed experts of this stack are in memory. Errors: the source's errors;
    // kTimeout (names the weight).
    Status Await(program::ValueId weight);
    // Reads experts that the next Need may request, best first, as far as memory remains beside the
    // needed experts.
    void ReadAhead(program::ValueId ids, std::span<const int32_t> experts);

    // Reads the experts that were used most as far as they fit, while no step runs; before the
    // first Need. Uses: of earlier jobs (ExpertUse::weight: any stack of the choice).
    void Prime(std::span<const ExpertUse> uses);
    std::vector<ExpertUse> uses() const;

    // Whether reading ahead pays: the guesses were right often enough, and some of the choice's
    // experts are missing.
    bool WantsGuess(program::ValueId ids) const;
    DriveUse use() const;

  private:
    enum class Place : uint8_t { kAway, kReading, kHere };
    // An expert of a choice: its matrices in all stacks of the choice.
    struct Expert {
        Place place = Place::kAway;
        bool ahead = false;     // was read ahead, and not needed since
        bool given_up = false;  // being read, but to be dropped when the running reads end
        int running = 0;        // reads in progress
        int64_t left = 0;       // pieces that are not read
        int64_t last = 0;       // number of the last Need that needed it
        // log2 of the number of uses, of which older ones count less; see NoteUse.
        double use = -std::numeric_limits<double>::infinity();
        float count = 0;  // number of uses, including uses in earlier jobs
        Status failed;
    };
    struct Choice {
        std::vector<size_t> stacks;
        std::vector<Expert> experts;
        int64_t expert_bytes = 0;
        std::vector<size_t> needed;  // by the last Need
    };
    struct Stack {
        program::ValueId ids = program::kNoValue, weight = program::kNoValue;
        std::string name;
        kernels::PackedStack matrices;
        RowSource source;
        std::vector<int64_t> left;  // by expert: pieces that are not read
    };
    // Rows of an expert's matrix that one thread reads.
    struct Piece {
        size_t stack, expert;
        int64_t row;
    };
    // In the order in which they are served. kStart: the most used experts, at the start.
    enum Queue : uint8_t { kNeeded, kAhead, kStart, kQueues };
    using Lock = std::unique_lock<std::mutex>;

    Choice& ChoiceOf(program::ValueId ids) { return choices_.at(ids); }
    Expert& ExpertOf(const Piece& piece) {
        return ChoiceOf(stacks_[piece.stack].ids).experts[piece.expert];
    }
    Stack& StackOf(program::ValueId weight) { return stacks_[stack_of_.at(weight)]; }
    static int64_t PieceRows(const Stack& stack);
    double HalfLives() const;  // time since the start
    void NoteUse(Expert& expert) const;
    void Begin(Choice& choice, size_t expert, Queue queue);
    void EndReadsAhead(const Choice& needed);
    Status BeginMissing(Lock& lock, Choice& choice);
    void Drop(Choice& choice, size_t expert);
    void GiveUp(Choice& choice, size_t expert);
    void GiveUpAll();
    // Drops spare experts until `bytes` more fit; false: there are too few. keep: experts of the
    // choice `of` that stay.
    bool MakeSpace(int64_t bytes, const Choice& of, const std::vector<bool>& keep);
    template <typename Id>
    static std::vector<bool> In(const Choice& choice, std::span<const Id> experts);
    template <typename Done>
    Status AwaitReads(Lock& lock, const Done& done);
    Error Lost() const;
    Status StartReaders();
    void RunReader();
    void Wake(Queue queue);
    bool NextQueue(Queue& queue) const;
    Status Read(const Piece& piece) const;
    void Finish(const Piece& piece, Status status);

    const Options options_;
    std::vector<Stack> stacks_;
    std::map<program::ValueId, size_t> stack_of_;
    std::map<program::ValueId, Choice> choices_;
    int64_t most_bytes_ = 0;

    // The rest, the state of experts included, is protected by mutex_ once readers run.
    mutable std::mutex mutex_;
    std::condition_variable work_, done_;
    std::array<std::deque<Piece>, kQueues> queues_;
    std::vector<std::pair<program::ValueId, size_t>> ahead_;  // experts since the last Need
    size_t running_ = 0, running_ahead_ = 0;
    size_t awaited_ = SIZE_MAX;  // stack for which the caller waits
    bool awaits_any_ = false;    // the caller waits for any read
    bool stop_ = false;
    int64_t here_bytes_ = 0;    // includes experts that are being read
    int64_t now_ = 0;           // number of calls of Need
    double guessed_right_ = 1;  // share of the reads ahead that were needed, of late
    int64_t busy_since_ns_ = 0, last_end_ns_ = 0;
    DriveUse use_;
    std::vector<std::thread> readers_;
};

}  // namespace weft::backend
