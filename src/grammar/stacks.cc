#include "grammar/stacks.h"

#include "base/check.h"

namespace weft::grammar {
namespace {

constexpr size_t kFewHeads = 16;  // linear search up to this number
constexpr size_t kMarks = 4096;   // a power of two above kMostHeads

size_t HashOf(uint32_t a, uint32_t b) {
    const uint64_t mixed = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15;
    return static_cast<size_t>(mixed >> 32);
}

}  // namespace

Stacks::Stacks(const Grammar& grammar) : grammar_(grammar), frames_(1), slots_(64, 0) {
    levels_.reserve(64);
    heads_.reserve(256);
    levels_.push_back({});
}

void Stacks::Load(std::span<const Frame> frames) {
    heads_.clear();
    levels_.clear();
    ForgetFrames(1);
    overflow_ = false;
    for (size_t at = 1; at < frames.size(); ++at) {
        const uint32_t made = Push(frames[at].to, frames[at].below);
        WEFT_CHECK(made == at);
    }
    levels_.push_back({0, frames_.size(), false, false});
    marked_ = false;
}

void Stacks::AddAlone(Head head) {
    heads_.push_back(head);
}

void Stacks::Add(Head head) {
    const size_t at = heads_.size();
    Put(head.state, head.frame);
    Close(at);
}

void Stacks::AddAfter(uint32_t frame) {
    Add({frames_[frame].to, frames_[frame].below});
}

// Makes level + 1 the last level, empty; returns the index of its first head.
size_t Stacks::OpenLevel(size_t level) {
    if (level + 1 < levels_.size()) {
        ForgetFrames(levels_[level + 1].frames);
        heads_.resize(levels_[level + 1].heads);
        levels_.resize(level + 1);
    }
    levels_.push_back({heads_.size(), frames_.size(), false, false});
    marked_ = false;
    return heads_.size();
}

void Stacks::PutNext(Head head, uint8_t byte) {
    const std::span<const uint32_t> next = grammar_.Next(head.state, byte);
    steps_ += 1 + next.size();
    for (const uint32_t to : next) Put(to, head.frame);
}

bool Stacks::Step(size_t level, uint8_t byte) {
    const size_t begin = levels_[level].heads;
    const size_t end = OpenLevel(level);
    for (size_t at = begin; at < end; ++at) PutNext(heads_[at], byte);
    Close(end);
    return levels_.back().live || levels_.back().at_bottom;
}

bool Stacks::StepAlone(size_t level, Head head, uint8_t byte) {
    const size_t end = OpenLevel(level);
    PutNext(head, byte);
    Close(end);
    return levels_.back().live || levels_.back().at_bottom;
}

void Stacks::Put(uint32_t state, uint32_t frame) {
    const Head head = {state, frame};
    if (Seen(head)) return;
    if (heads_.size() - levels_.back().heads >= kMostHeads) {
        overflow_ = true;
        return;
    }
    heads_.push_back(head);
    if (grammar_.HasBytes(state)) levels_.back().live = true;
}

bool Stacks::Seen(Head head) {
    const size_t begin = levels_.back().heads;
    const size_t count = heads_.size() - begin;
    if (count <= kFewHeads) {
        for (size_t at = begin; at < heads_.size(); ++at) {
            if (heads_[at] == head) return true;
        }
        return false;
    }
    const auto place = [&](Head wanted) {
        size_t at = HashOf(wanted.state, wanted.frame) % kMarks;
        while (marks_[at].round == round_ && marks_[at].head != wanted) at = (at + 1) % kMarks;
        return at;
    };
    if (!marked_) {
        marks_.resize(kMarks);
        marked_ = true;
        ++round_;
        for (size_t at = begin; at < heads_.size(); ++at) {
            marks_[place(heads_[at])] = {round_, heads_[at]};
        }
    }
    Mark& mark = marks_[place(head)];
    if (mark.round == round_) return true;
    if (count < kMostHeads) mark = {round_, head};
    return false;
}

// Follows calls and ends of rules, starting with the heads from `at` on. The result of a level that
// overflowed is invalid.
void Stacks::Close(size_t at) {
    for (; at < heads_.size() && !overflow_; ++at) {
        const Head head = heads_[at];
        if (grammar_.IsPlain(head.state)) continue;
        for (const Grammar::Call& call : grammar_.Calls(head.state)) {
            if (overflow_) return;
            ++steps_;
            if (call.to == 0) {
                Put(call.start, head.frame);
            } else if (frames_[head.frame].depth < kMostDepth) {
                Put(call.start, Push(call.to, head.frame));
            }
        }
        if (!grammar_.IsFinal(head.state)) continue;
        ++steps_;
        if (head.frame == kBottom) {
            levels_.back().at_bottom = true;
        } else {
            Put(frames_[head.frame].to, frames_[head.frame].below);
        }
    }
}

size_t Stacks::SlotOf(uint32_t to, uint32_t below) const {
    const size_t mask = slots_.size() - 1;
    size_t at = HashOf(to, below) & mask;
    while (slots_[at] != 0) {
        const Frame& frame = frames_[slots_[at]];
        if (frame.to == to && frame.below == below) break;
        at = (at + 1) & mask;
    }
    return at;
}

uint32_t Stacks::Push(uint32_t to, uint32_t below) {
    size_t slot = SlotOf(to, below);
    if (slots_[slot] != 0) return slots_[slot];
    if (frames_.size() * 2 >= slots_.size()) {
        Rehash(slots_.size() * 2);
        slot = SlotOf(to, below);
    }
    slots_[slot] = static_cast<uint32_t>(frames_.size());
    frames_.push_back({to, below, frames_[below].depth + 1});
    return slots_[slot];
}

void Stacks::Rehash(size_t slots) {
    slots_.assign(slots, 0);
    for (size_t frame = 1; frame < frames_.size(); ++frame) {
        slots_[SlotOf(frames_[frame].to, frames_[frame].below)] = static_cast<uint32_t>(frame);
    }
}

// Frames are removed in reverse order: each one is the last of its hash chain and can be freed.
void Stacks::ForgetFrames(size_t count) {
    while (frames_.size() > count) {
        slots_[SlotOf(frames_.back().to, frames_.back().below)] = 0;
        frames_.pop_back();
    }
}

}  // namespace weft::grammar
