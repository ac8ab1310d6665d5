// Authenticated encryption: AES-GCM (NIST SP 800-38D, by OpenSSL) with 16-byte tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace weft {

// One direction of a connection: seals messages, or opens them. The caller numbers the messages;
// the number is the nonce, so a key must never seal two messages with one number.
class AesGcm {
  public:
    static constexpr size_t kTagBytes = 16;
    enum class Direction { kSeal, kOpen };
    using Bytes = std::span<const std::byte>;
    using Tag = std::span<std::byte, kTagBytes>;

    // key: 16 bytes (AES-128) or 32 bytes (AES-256).
    AesGcm(Direction direction, std::span<const uint8_t> key);
    AesGcm(AesGcm&&) noexcept;
    ~AesGcm();

    // Encrypts `parts`, one after the other, to `out`, which has the bytes of all parts. Writes a
    // tag over them and over `header`, which is sent in clear.
    void Seal(uint64_t number, Bytes header, std::span<const Bytes> parts, std::byte* out, Tag tag);
    // Decrypts `in` to `out`, which has as many bytes and is `in` itself or does not overlap it.
    // Returns false if the message, its header, its number or its tag was changed; `out` is then
    // undefined.
    bool Open(uint64_t number, Bytes header, Bytes in, std::byte* out, Bytes tag);

  private:
    bool Begin(uint64_t number, Bytes header);
    bool Update(Bytes in, std::byte* out);

    struct Free {
        void operator()(evp_cipher_ctx_st* context) const;
    };
    std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace weft
