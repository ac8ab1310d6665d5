// Stores responses of /v1/responses, so that later requests can continue them
// (previous_response_id) and GET and DELETE can find them.
//
// There are limits of count and bytes. Over a limit, the owner that holds most of the exceeded
// resource loses its oldest response. An owner can access its own responses only.
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

// Approximate memory of a value; with many small parts it is far more than the text.
int64_t HeldBytes(const Json& json);

class ResponseStore {
  public:
    virtual ~ResponseStore() = default;

    struct Stored {
        Json response;
        // Conversation before the answer, in the form of `input`. Shared, so that a long
        // conversation need not be copied under the lock.
        std::shared_ptr<const Json> items;
        int64_t held_bytes = 0;  // HeldBytes of both members
    };

    // If false, nothing is stored.
    virtual bool on() const = 0;
    // Whether the methods below use files, so that they do not belong on the engine's thread or an
    // I/O thread.
    virtual bool uses_files() const = 0;
    // Ignores a response that is larger than the whole byte limit.
    virtual void Put(const std::string& owner, const std::string& id, Stored stored) = 0;
    // Null if `owner` has no such response.
    virtual std::shared_ptr<const Stored> Get(const std::string& owner,
                                              const std::string& id) const = 0;
    // Returns whether the response existed.
    virtual bool Remove(const std::string& owner, const std::string& id) = 0;
};

class ResponseMemory final : public ResponseStore {
  public:
    // most: limit of the count; 0: nothing is stored.
    ResponseMemory(int64_t most, int64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}
    bool on() const override { return most_ > 0; }
    bool uses_files() const override { return false; }
    void Put(const std::string& owner, const std::string& id, Stored stored) override;
    std::shared_ptr<const Stored> Get(const std::string& owner,
                                      const std::string& id) const override;
    bool Remove(const std::string& owner, const std::string& id) override;

    int64_t count() const;
    int64_t bytes() const;

  private:
    struct Entry {
        std::string owner;
        std::shared_ptr<const Stored> stored;
        int64_t bytes;
        std::list<std::string>::iterator place;  // position in its owner's ids
    };
    struct Owner {
        int64_t bytes = 0;
        std::list<std::string> ids{};  // oldest first
    };
    void Erase(const std::string& id);
    void MakeSpace();

    const int64_t most_, most_bytes_;
    mutable std::mutex mutex_;
    std::unordered_map<std::string, Entry> entries_;
    std::unordered_map<std::string, Owner> owners_;
    int64_t bytes_ = 0;
};

}  // namespace weft::serve
