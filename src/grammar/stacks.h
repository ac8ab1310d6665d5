// The machine that follows a grammar: sets of stacks, level by level.
//
// A head is a place in the grammar and the stack of places to go on at when its rule ends. Stacks
// share their tails: a frame is one place and the frame below; equal stacks are one frame. A level
// holds the heads after so many bytes; stepping makes the next level out of one and forgets those
// beyond, so that a walk over a tree keeps one level for each depth.
//
// Errors: more heads than kMostHeads on a level set overflow(); a stack that would be deeper than
// kMostDepth is not followed. Thread: one caller. Allocates only while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/grammar.h"

namespace weft::grammar {

class Stacks {
  public:
    static constexpr size_t kMostHeads = 1000;
    static constexpr uint32_t kMostDepth = 500;
    static constexpr uint32_t kBottom = 0;  // the frame of an empty stack

    struct Head {
        uint32_t state;
        uint32_t frame;
        bool operator==(const Head&) const = default;
    };
    struct Frame {
        uint32_t to;     // where the rule below goes on
        uint32_t below;  // frame, of a lower number
        uint32_t depth;
    };

    explicit Stacks(const Grammar& grammar);

    // One level, empty, over `frames` (the first is the bottom, none appears twice).
    void Load(std::span<const Frame> frames);
    // Adds to the only level a head as it is, or with all that it leads to without a byte.
    void AddAlone(Head head);
    void Add(Head head);
    // Adds what follows when the rule of `frame` ends.
    void AddAfter(uint32_t frame);

    // Makes level + 1 from a level; forgets those beyond. False: no head and not at the bottom.
    bool Step(size_t level, uint8_t byte);
    // The same as if the level had this head and no other.
    bool StepAlone(size_t level, Head head, uint8_t byte);

    std::span<const Head> heads(size_t level) const {
        const size_t begin = levels_[level].heads;
        const size_t end = level + 1 < levels_.size() ? levels_[level + 1].heads : heads_.size();
        return std::span(heads_).subspan(begin, end - begin);
    }
    // A head has ended the rule that the walk began in: nothing is left on its stack.
    bool at_bottom(size_t level) const { return levels_[level].at_bottom; }
    bool live(size_t level) const { return levels_[level].live; }  // a head has bytes to go on by
    std::span<const Frame> frames() const { return frames_; }
    const Grammar& grammar() const { return grammar_; }

    bool overflow() const { return overflow_; }
    uint64_t steps() const { return steps_; }  // a measure of the time taken since it was made

  private:
    struct Level {
        size_t heads;   // where they begin
        size_t frames;  // how many there were before it
        bool at_bottom;
        bool live;
    };
    size_t OpenLevel(size_t level);
    void PutNext(Head head, uint8_t byte);
    void Put(uint32_t state, uint32_t frame);
    bool Seen(Head head);
    void Close(size_t at);
    uint32_t Push(uint32_t to, uint32_t below);
    size_t SlotOf(uint32_t to, uint32_t below) const;
    void ForgetFrames(size_t count);
    void Rehash(size_t slots);

    const Grammar& grammar_;
    std::vector<Level> levels_;
    std::vector<Head> heads_;  // of all levels
    std::vector<Frame> frames_;
    std::vector<uint32_t> slots_;  // frames by content: open addressing, 0 is free
    // The same for the heads of a level with many of them.
    struct Mark {
        uint64_t round;
        Head head;
    };
    std::vector<Mark> marks_;
    uint64_t round_ = 0;
    bool marked_ = false;
    bool overflow_ = false;
    uint64_t steps_ = 0;
};

}  // namespace weft::grammar
