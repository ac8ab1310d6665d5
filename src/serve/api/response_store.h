// Answers of /v1/responses that are kept, so that a later request can go on from one
// (previous_response_id), and GET and DELETE find it.
//
// Kept in memory, until the server ends or others need the room: bounded in number and bytes. Then
// whoever holds most of what is short loses their oldest. An owner sees what is its own, and
// nothing else.
// Thread: any.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "serve/api/fields.h"

namespace weft::serve {

// What a value takes in memory, about. (Far more than its text where it has many small parts.)
int64_t HeldBytes(const Json& json);

class ResponseStore {
  public:
    struct Stored {
        Json response;
        // Of the conversation up to the answer, as `input` would have them. Made once, as others
        // must not wait while a long one is copied.
        std::shared_ptr<const Json> items;
        int64_t held_bytes = 0;  // of both: HeldBytes
    };

    // most: 0: nothing is kept.
    ResponseStore(int64_t most, int64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}
    bool on() const { return most_ > 0; }

    // What alone has more bytes than there is room for is not kept.
    void Put(const std::string& owner, const std::string& id, Stored stored);
    // Null: there is none of that owner.
    std::shared_ptr<const Stored> Get(const std::string& owner, const std::string& id) const;
    // Whether there was one.
    bool Remove(const std::string& owner, const std::string& id);

    int64_t count() const;
    int64_t bytes() const;

  private:
    struct Entry {
        std::string owner;
        std::shared_ptr<const Stored> stored;
        int64_t bytes;
        std::list<std::string>::iterator place;  // in its owner's ids
    };
    struct Owner {
        int64_t bytes = 0;
        std::list<std::string> ids{};  // the oldest first
    };
    void Erase(const std::string& id);
    void MakeRoom();

    const int64_t most_, most_bytes_;
    mutable std::mutex mutex_;
    std::unordered_map<std::string, Entry> entries_;
    std::unordered_map<std::string, Owner> owners_;
    int64_t bytes_ = 0;
};

}  // namespace weft::serve
