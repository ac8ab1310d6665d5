#include "backend/cpu/expert_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "backend/cpu/buffers.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "hw/cpu.h"

namespace weft::backend {
namespace {

// Number of steps in which the weight of a use halves. On synthetic routes with skewed use, topics
// and repetition, 16 steps miss less than 4 or 60, and less than the order of last use.
constexpr double kHalfLifeSteps = 16;
// The weight of an expert that every step uses: the sum of 2^(-i / kHalfLifeSteps).
constexpr double kMostUse = kHalfLifeSteps * 1.4427;
// Uses of earlier jobs count as so many at most, so that new ones are noticed.
constexpr float kMostOfEarlier = 10'000;
// Small pieces let one expert keep several readers busy: one packs while others read.
constexpr int64_t kPieceBytes = 256 << 10;
// Reads ahead at a time: a needed read waits for these at most.
constexpr size_t kReadsAhead = 6;
// A wrong guess costs up to kReadsAhead pieces, and drops an expert that may be needed. Below
// kLeastRight, only every kTryAgain-th choice is guessed, to notice when guesses become better.
// kGuessWeight: the weight of a guess in the share of right ones.
constexpr double kLeastRight = 0.5, kGuessWeight = 0.02;
constexpr int64_t kTryAgain = 31;

}  // namespace

int64_t DrivePage() {
    static const int64_t page = ::sysconf(_SC_PAGESIZE);
    return page;
}

ExpertStore::~ExpertStore() {
    {
        Lock lock(mutex_);
        stop_ = true;
        for (auto& queue : queues_) queue.clear();
        work_.notify_all();
        if (!AwaitReads(lock, [&] { return running_ == 0; }).ok()) {
            Log(LogLevel::kError, "{}", Lost().message);
            std::_Exit(1);
        }
    }
    for (std::thread& reader : readers_) reader.join();
}

void ExpertStore::Add(program::ValueId ids, program::ValueId weight, const std::string& name,
                      const kernels::PackedStack& stack) {
    // (Two choices that share a stack would drop each other's experts.)
    WEFT_CHECK(!stack_of_.contains(weight));
    Choice& choice = choices_[ids];
    choice.stacks.push_back(stacks_.size());
    choice.experts.resize(static_cast<size_t>(stack.count));
    choice.expert_bytes += stack.stride_bytes;
    stack_of_[weight] = stacks_.size();
    stacks_.push_back({ids, weight, name, stack, nullptr,
                       std::vector<int64_t>(static_cast<size_t>(stack.count))});
    // Pages that were dropped must not come back as parts of huge pages.
    ::madvise(stack.data, static_cast<size_t>(stack.count * stack.stride_bytes), MADV_NOHUGEPAGE);
}

int64_t ExpertStore::TotalBytes() const {
    int64_t bytes = 0;
    for (const Stack& one : stacks_) bytes += one.matrices.count * one.matrices.stride_bytes;
    return bytes;
}

int64_t ExpertStore::LeastBytes() const {
    int64_t most = 0;
    for (const auto& [ids, choice] : choices_) {
        most = std::max(most, std::ssize(choice.experts) * choice.expert_bytes);
    }
    return most;
}

void ExpertStore::Load(program::ValueId weight, RowSource source) {
    StackOf(weight).source = std::move(source);
}

DriveUse ExpertStore::use() const {
    const Lock lock(mutex_);
    return use_;
}

// ---- What the caller does -----------------------------------------------------------------------

Status ExpertStore::Need(program::ValueId ids, const int32_t* begin) {
    WEFT_TRY(StartReaders());
    Lock lock(mutex_);
    Choice& choice = ChoiceOf(ids);
    ++now_;
    choice.needed.clear();
    for (size_t e = 0; e < choice.experts.size(); ++e) {
        if (begin[e] == begin[e + 1]) continue;
        choice.needed.push_back(e);
        NoteUse(choice.experts[e]);
    }
    EndReadsAhead(choice);
    Status begun = BeginMissing(lock, choice);
    if (!begun.ok()) GiveUpAll();
    return begun;
}

Status ExpertStore::BeginMissing(Lock& lock, Choice& choice) {
    std::vector<size_t> missing;
    for (const size_t e : choice.needed) {
        Expert& expert = choice.experts[e];
        const bool ahead = std::exchange(expert.ahead, false);
        ++(expert.place == Place::kHere && !ahead ? use_.hits : use_.misses);
        if (ahead) ++use_.ahead_used;
        // (Reads that were given up still write to the expert's memory.)
        if (expert.given_up) {
            WEFT_TRY(AwaitReads(lock, [&] { return expert.place == Place::kAway; }));
        }
        if (expert.place == Place::kAway) missing.push_back(e);
    }
    const int64_t bytes = std::ssize(missing) * choice.expert_bytes;
    WEFT_TRY(AwaitReads(
        lock, [&] { return MakeSpace(bytes, choice, In<size_t>(choice, choice.needed)); }));
    for (const size_t e : missing) Begin(choice, e, kNeeded);
    // In the order of the ops that wait for them.
    std::ranges::stable_sort(queues_[kNeeded], {}, &Piece::stack);
    Wake(kNeeded);
    return {};
}

Status ExpertStore::Await(program::ValueId weight) {
    Lock lock(mutex_);
    awaited_ = stack_of_.at(weight);
    const Stack& stack = stacks_[awaited_];
    const Choice& choice = ChoiceOf(stack.ids);
    Status failed;
    Status waited = AwaitReads(lock, [&] {
        return std::ranges::all_of(choice.needed, [&](size_t e) {
            if (failed.ok()) failed = choice.experts[e].failed;
            return stack.left[e] == 0 || !failed.ok();
        });
    });
    awaited_ = SIZE_MAX;
    if (waited.ok()) waited = std::move(failed);
    if (!waited.ok()) GiveUpAll();
    return waited;
}

void ExpertStore::ReadAhead(program::ValueId ids, std::span<const int32_t> experts) {
    const Lock lock(mutex_);
    Choice& choice = ChoiceOf(ids);
    const std::vector<bool> keep = In(choice, experts);
    for (const int32_t id : experts) {
        const auto e = static_cast<size_t>(id);
        if (choice.experts[e].place != Place::kAway) continue;
        if (!MakeSpace(choice.expert_bytes, choice, keep)) break;
        Begin(choice, e, kAhead);
        ahead_.emplace_back(ids, e);
        ++use_.ahead;
    }
    Wake(kAhead);
}

bool ExpertStore::WantsGuess(program::ValueId ids) const {
    const Lock lock(mutex_);
    if (guessed_right_ < kLeastRight && now_ % kTryAgain != 0) return false;
    const auto choice = choices_.find(ids);
    return choice != choices_.end() && std::ranges::any_of(choice->second.experts, [](auto& e) {
               return e.place == Place::kAway;
           });
}

void ExpertStore::Prime(std::span<const ExpertUse> uses) {
    struct Used {
        float uses;
        Choice* choice;
        size_t expert;
    };
    std::vector<Used> order;
    float most = 0;
    for (const ExpertUse& one : uses) {
        for (const float uses_of : one.uses) most = std::max(most, uses_of);
    }
    for (const ExpertUse& one : uses) {
        Choice& choice = ChoiceOf(StackOf(one.weight).ids);
        for (size_t e = 0; e < std::min(one.uses.size(), choice.experts.size()); ++e) {
            if (!(one.uses[e] > 0)) continue;
            Expert& expert = choice.experts[e];
            expert.count = one.uses[e] * std::min(1.0f, kMostOfEarlier / most);
            expert.use = std::log2(kMostUse * double{one.uses[e]} / double{most});
            order.push_back({one.uses[e], &choice, e});
        }
    }
    std::ranges::stable_sort(order, std::ranges::greater(), &Used::uses);
    if (!StartReaders().ok()) return;  // Need tries again, and fails with the error
    const Lock lock(mutex_);
    // (The first steps need memory beside experts that are being read.)
    const int64_t most_bytes = most_bytes_ - LeastBytes();
    for (const Used& one : order) {
        const bool fits = here_bytes_ + one.choice->expert_bytes <= most_bytes;
        const bool away = one.choice->experts[one.expert].place == Place::kAway;
        if (fits && away) Begin(*one.choice, one.expert, kStart);
    }
    Wake(kStart);
}

std::vector<ExpertUse> ExpertStore::uses() const {
    const Lock lock(mutex_);
    std::vector<ExpertUse> all;
    for (const auto& [ids, choice] : choices_) {
        ExpertUse& one = all.emplace_back();
        one.weight = stacks_[choice.stacks[0]].weight;
        for (const Expert& expert : choice.experts) {
            one.uses.push_back(expert.count);
        }
    }
    return all;
}

template <typename Id>
std::vector<bool> ExpertStore::In(const Choice& choice, std::span<const Id> experts) {
    std::vector<bool> in(choice.experts.size());
    for (const Id e : experts) in[static_cast<size_t>(e)] = true;
    return in;
}

// Waits until done() is true. Errors: kTimeout (no read has ended for too long).
template <typename Done>
Status ExpertStore::AwaitReads(Lock& lock, const Done& done) {
    int64_t begin_ns = 0;
    awaits_any_ = awaited_ == SIZE_MAX;
    while (!done()) {
        if (begin_ns == 0) begin_ns = NowNs();
        const Deadline deadline =
            Deadline::From(std::max(begin_ns, last_end_ns_), options_.timeout_ms);
        if (deadline.expired()) return Lost();
        done_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms()));
    }
    if (begin_ns != 0) use_.wait_s += SecondsSince(begin_ns);
    return {};
}

// The drive's time-out, which names a weight whose read has not ended.
Error ExpertStore::Lost() const {
    const auto is_read = [](const Choice& choice) {
        return std::ranges::find_if(choice.experts, [](const Expert& e) { return e.running > 0; });
    };
    std::string what = "experts";
    for (const Stack& stack : stacks_) {
        const Choice& choice = choices_.at(stack.ids);
        const auto expert = is_read(choice);
        if (expert == choice.experts.end()) continue;
        const auto e = static_cast<size_t>(expert - choice.experts.begin());
        if (stack.left[e] == 0) continue;
        what = fmt::format("expert {} of {}", e, stack.name);
        break;
    }
    return MakeError(ErrorCode::kTimeout,
                     "{}: the drive gave no data of {} within {} ms. Is the drive or the network "
                     "file system still there? 'dmesg' shows errors of drives",
                     options_.file, what, options_.timeout_ms);
}

// ---- Which experts are in memory ----------------------------------------------------------------

double ExpertStore::HalfLives() const {
    return static_cast<double>(now_) / (kHalfLifeSteps * static_cast<double>(choices_.size()));
}

void ExpertStore::NoteUse(Expert& expert) const {
    // Kept as a logarithm at time 0, so that it needs no change as time passes.
    const double now = HalfLives();
    expert.use = now + std::log2(1 + std::exp2(expert.use - now));
    expert.last = now_;
    ++expert.count;
}

void ExpertStore::Begin(Choice& choice, size_t e, Queue queue) {
    Expert& expert = choice.experts[e];
    expert.place = Place::kReading;
    expert.ahead = queue == kAhead;
    expert.failed = {};
    here_bytes_ += choice.expert_bytes;
    for (const size_t index : choice.stacks) {
        Stack& stack = stacks_[index];
        for (int64_t row = 0; row < stack.matrices.rows; row += PieceRows(stack)) {
            queues_[queue].push_back({index, e, row});
            ++stack.left[e];
            ++expert.left;
        }
    }
}

// Pieces of needed experts go first, and other reads ahead end.
void ExpertStore::EndReadsAhead(const Choice& needed) {
    for (const auto& [ids, e] : std::exchange(ahead_, {})) {
        Choice& choice = ChoiceOf(ids);
        Expert& expert = choice.experts[e];
        const bool right = &choice == &needed && expert.last == now_;
        guessed_right_ += (right - guessed_right_) * kGuessWeight;
        if (!right) expert.ahead = false;
        const bool reads = expert.place == Place::kReading && !expert.given_up;
        if (reads && (!right || !expert.failed.ok())) GiveUp(choice, e);
    }
    for (const Queue queue : {kAhead, kStart}) {
        for (const Piece& piece : std::exchange(queues_[queue], {})) {
            const Expert& expert = ExpertOf(piece);
            const bool reads = expert.place == Place::kReading && !expert.given_up;
            if (!reads) continue;
            const bool now = expert.last == now_ && &ChoiceOf(stacks_[piece.stack].ids) == &needed;
            queues_[now ? kNeeded : queue].push_back(piece);
        }
    }
}

void ExpertStore::Drop(Choice& choice, size_t e) {
    Expert& expert = choice.experts[e];
    expert.place = Place::kAway;
    expert.ahead = expert.given_up = false;
    expert.left = 0;
    here_bytes_ -= choice.expert_bytes;
    for (const size_t index : choice.stacks) {
        stacks_[index].left[e] = 0;
        const kernels::PackedStack& all = stacks_[index].matrices;
        ::madvise(all.data + static_cast<int64_t>(e) * all.stride_bytes,
                  static_cast<size_t>(all.stride_bytes), MADV_DONTNEED);
    }
}

// Ends the reads of an expert; the caller removes its pieces from the queues.
void ExpertStore::GiveUp(Choice& choice, size_t e) {
    Expert& expert = choice.experts[e];
    expert.given_up = true;
    if (expert.running == 0) Drop(choice, e);
}

void ExpertStore::GiveUpAll() {
    for (auto& queue : queues_) queue.clear();
    ahead_.clear();
    for (auto& [ids, choice] : choices_) {
        for (size_t e = 0; e < choice.experts.size(); ++e) {
            if (choice.experts[e].place == Place::kReading) GiveUp(choice, e);
        }
    }
}

// Spares: the experts with the least use, but none that the last Need or a read ahead needs.
bool ExpertStore::MakeSpace(int64_t bytes, const Choice& of, const std::vector<bool>& keep) {
    if (here_bytes_ + bytes <= most_bytes_) return true;
    struct Spare {
        double use;
        Choice* choice;
        size_t expert;
    };
    std::vector<Spare> spares;
    for (auto& [ids, choice] : choices_) {
        for (size_t e = 0; e < choice.experts.size(); ++e) {
            const Expert& expert = choice.experts[e];
            const bool in_use = expert.last == now_ || (&choice == &of && keep[e]);
            if (expert.place != Place::kHere || expert.ahead || in_use) continue;
            spares.push_back({expert.use, &choice, e});
        }
    }
    const auto later = [](const Spare& a, const Spare& b) { return a.use > b.use; };
    std::ranges::make_heap(spares, later);
    while (here_bytes_ + bytes > most_bytes_ && !spares.empty()) {
        std::ranges::pop_heap(spares, later);
        Drop(*spares.back().choice, spares.back().expert);
        spares.pop_back();
    }
    return here_bytes_ + bytes <= most_bytes_;
}

// ---- Reading ------------------------------------------------------------------------------------

int64_t ExpertStore::PieceRows(const Stack& stack) {
    return backend::PieceRows(stack.matrices.Matrix(0), kPieceBytes);
}

Status ExpertStore::StartReaders() {
    while (readers_.size() < kReaders) {
        std::thread reader;
        const Status started = StartThread(reader, [this] { RunReader(); },
                                           {.wait_ms = readers_.empty() ? kThreadMs : 0});
        if (!started.ok() && readers_.empty()) return started;
        if (!started.ok()) break;
        readers_.push_back(std::move(reader));
    }
    return {};
}

void ExpertStore::RunReader() {
    // Otherwise the thread would inherit the affinity of its creator, which is pinned to one core.
    RunThisThreadOn(options_.cores);
    Lock lock(mutex_);
    for (;;) {
        Queue queue{};
        work_.wait(lock, [&] { return stop_ || NextQueue(queue); });
        if (stop_) return;
        const Piece piece = queues_[queue].front();
        queues_[queue].pop_front();
        if (queue != kNeeded) ++running_ahead_;
        if (running_++ == 0) busy_since_ns_ = NowNs();
        ++ExpertOf(piece).running;
        lock.unlock();
        Status read = Read(piece);
        lock.lock();
        if (queue != kNeeded) --running_ahead_;
        Finish(piece, std::move(read));
    }
}

// Wakes no more readers than can work: a step has many calls, and most find their experts here.
void ExpertStore::Wake(Queue queue) {
    const size_t most = queue == kNeeded ? kReaders : kReadsAhead;
    for (size_t i = 0; i < std::min(queues_[queue].size(), most); ++i) work_.notify_one();
}

bool ExpertStore::NextQueue(Queue& queue) const {
    for (const Queue one : {kNeeded, kAhead, kStart}) {
        queue = one;
        if (!queues_[one].empty()) return one == kNeeded || running_ahead_ < kReadsAhead;
    }
    return false;
}

Status ExpertStore::Read(const Piece& piece) const {
    const DirectReads direct;
    const Stack& stack = stacks_[piece.stack];
    const auto e = static_cast<int64_t>(piece.expert);
    const kernels::PackedMatrix matrix = stack.matrices.Matrix(e);
    const int64_t rows = std::min(PieceRows(stack), matrix.rows - piece.row);
    const int64_t matrix_bytes = stack.matrices.stride_bytes;
    static thread_local std::vector<std::byte> raw;
    // One call instead of a page fault for each page. (Kernels before 5.14 refuse it.)
    const int64_t begin = matrix_bytes * piece.row / matrix.rows / DrivePage() * DrivePage();
    const int64_t end = matrix_bytes * (piece.row + rows) / matrix.rows;
    ::madvise(matrix.data + begin, static_cast<size_t>(end - begin), MADV_POPULATE_WRITE);
    return LoadPiece(matrix, piece.row, rows, e * matrix.rows, stack.source, options_.pack, raw);
}

void ExpertStore::Finish(const Piece& piece, Status status) {
    Stack& stack = stacks_[piece.stack];
    Choice& choice = ChoiceOf(stack.ids);
    Expert& expert = choice.experts[piece.expert];
    last_end_ns_ = NowNs();
    if (--running_ == 0) use_.read_s += SecondsSince(busy_since_ns_);
    --expert.running;
    --expert.left;
    --stack.left[piece.expert];
    const bool tells = awaited_ == piece.stack || awaits_any_ || !status.ok() || stop_;
    if (status.ok()) {
        const int64_t rows = std::min(PieceRows(stack), stack.matrices.rows - piece.row);
        use_.read_bytes +=
            static_cast<uint64_t>(rows * RowBytes(stack.matrices.dtype, stack.matrices.cols));
    } else if (expert.failed.ok()) {
        expert.failed = std::move(status);
    }
    if (expert.given_up) {
        if (expert.running == 0) Drop(choice, piece.expert);
    } else if (expert.left == 0 && expert.failed.ok()) {
        expert.place = Place::kHere;
    }
    if (tells) done_.notify_all();
}

}  // namespace weft::backend
