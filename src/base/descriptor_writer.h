// Writes text to a descriptor on a thread of its own, so that a reader that has stopped (`| less`,
// Ctrl-S, a stuck log collector) blocks no other thread.
//
// Texts are written in order, each by one write(2), so that lines of several processes do not mix.
// The queue holds at most kMostBytes: a text that does not fit is dropped and counted.
// The thread starts at the first text. A forked child that does not exec has no such thread: it
// writes directly, and the parent writes the texts that the parent had queued.
// Thread: any, but not a signal handler.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

class DescriptorWriter {
  public:
    static constexpr size_t kMostBytes = 1 << 20;
    // Space beyond kMostBytes that only kUrgent texts may use.
    static constexpr size_t kReserveBytes = 64 << 10;
    // Longest time that one Write waits for a stopped reader.
    static constexpr int64_t kPatienceMs = 100;
    enum class Priority { kNormal, kUrgent };

    // fd: must stay open until the process ends.
    // notice: returns the line that replaces `count` dropped texts once the reader reads again; "":
    // no line. It is called with a lock held, so it must not use this object.
    using Notice = std::string (*)(uint64_t count);
    constexpr DescriptorWriter(int fd, Notice notice) : fd_(fd), notice_(notice) {}
    DescriptorWriter(const DescriptorWriter&) = delete;
    DescriptorWriter& operator=(const DescriptorWriter&) = delete;

    // Queues the text and returns at once.
    void Post(std::string_view text, Priority priority = Priority::kNormal);
    // Queues the text and waits until it is written, for at most kPatienceMs. After a timeout,
    // calls return without waiting, until the queue has been empty once.
    void Write(std::string_view text, Priority priority = Priority::kNormal);
    // Waits until the queue is empty. Gives up after `stall_ms` without a written text, or after
    // ten times `stall_ms` in total. Returns false if text is still queued.
    bool Flush(int64_t stall_ms);
    // The errno of the first write that failed; 0: none failed.
    int error() const { return error_.load(); }

  private:
    struct State;
    State& Mine();
    // Returns the text's number; 0: it was dropped.
    uint64_t Queue(State& state, std::string_view text, Priority priority);
    void ReportDropped(State& state);
    void Run(State& state);
    void Put(std::string_view text);

    const int fd_;
    const Notice notice_;
    std::atomic<int> error_{0};
    std::atomic<State*> state_{nullptr};
};

}  // namespace weft
