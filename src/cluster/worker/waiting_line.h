// The callers that wait for a place of a busy worker, in order.
//
// A caller that waits calls again and again, each time with the same ticket: a random number of its
// job. The worker hangs up between two calls, so a waiting caller costs a few bytes. Only the first
// in line gets a free slot, and a ticket that has not returned for kAbsentMs leaves the line.
//
// A job that needs several workers must have the same order in each of their lines, or two such
// jobs would wait for each other. So a ticket has a number, as in Lamport's bakery algorithm: a
// worker numbers a new ticket one above all numbers that it has seen, the caller uses the largest
// number of its workers at all of them, and each line is in the order of numbers, then tickets.
// Such a job looks first (PlaceRequest::take is false), and takes its slots once all workers
// reserve one for it.
//
// No socket and no clock (now_ns comes from the caller). Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cluster/frame.h"

namespace weft::cluster {

constexpr int64_t kAbsentMs = 1000;  // ten calls of a waiting caller
constexpr size_t kMostInLine = 256;

// Random, not zero.
uint64_t NewTicket();

class WaitingLine {
  public:
    struct Turn {
        bool taken = false;    // the caller gets a slot now, and has left the line
        bool entered = false;  // the ticket is new in the line
        PlaceAnswer answer{};  // if not taken; without the jobs and places
    };
    // One call. free: places without a job.
    Turn Call(const PlaceRequest& request, int free, int64_t now_ns);
    // Keeps a place for a job whose rank was killed, because rank 0 may call it back.
    void Keep(uint64_t ticket, int64_t until_ns);
    size_t size() const { return entries_.size(); }

  private:
    struct Entry {
        uint64_t number = 0;  // 0: reserved for a job that had a slot
        uint64_t ticket = 0;
        int64_t until_ns = 0;
    };
    std::vector<Entry> entries_;  // ascending
    uint64_t last_ = 0;           // the largest number seen
};

}  // namespace weft::cluster
