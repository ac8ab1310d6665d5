#include "fleet/key_phrase.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/hash.h"

namespace weft::fleet {
namespace {

constexpr std::string_view kConsonants = "bdfghjklmnprstvz";
constexpr std::string_view kVowels = "aiou";
constexpr size_t kLetters = 5;
constexpr size_t kSecretBytes = 2 * kKeyWords - 1;

uint8_t CheckOf(std::span<const std::byte> secret) {
    return Sha256(secret)[0];
}

std::string WordOf(uint32_t bits) {
    return {kConsonants[bits >> 12], kVowels[bits >> 10 & 3], kConsonants[bits >> 6 & 15],
            kVowels[bits >> 4 & 3], kConsonants[bits & 15]};
}

std::optional<uint32_t> BitsOfWord(std::string_view word) {
    if (word.size() != kLetters) return std::nullopt;
    uint32_t bits = 0;
    for (size_t i = 0; i < kLetters; ++i) {
        const bool vowel = i % 2 == 1;
        const size_t at = (vowel ? kVowels : kConsonants).find(word[i]);
        if (at == std::string_view::npos) return std::nullopt;
        bits = bits << (vowel ? 2 : 4) | static_cast<uint32_t>(at);
    }
    return bits;
}

// Converts to lower case and splits at spaces and hyphens.
std::vector<std::string> Cut(const std::vector<std::string>& typed) {
    std::vector<std::string> words;
    for (const std::string& text : typed) {
        bool fresh = true;
        for (const char letter : text) {
            if (letter == ' ' || letter == '-' || letter == '\t' || letter == '\n') {
                fresh = true;
                continue;
            }
            if (fresh) words.emplace_back();
            fresh = false;
            const bool upper = letter >= 'A' && letter <= 'Z';
            words.back() += upper ? static_cast<char>(letter - 'A' + 'a') : letter;
        }
    }
    return words;
}

}  // namespace

std::string NewKeyPhrase() {
    std::array<std::byte, kSecretBytes + 1> bytes{};
    const auto secret = std::span(bytes).first(kSecretBytes);
    RandomBytes(secret);
    bytes.back() = static_cast<std::byte>(CheckOf(secret));
    std::string words;
    for (size_t at = 0; at < bytes.size(); at += 2) {
        if (at > 0) words += '-';
        words += WordOf(std::to_integer<uint32_t>(bytes[at]) << 8 |
                        std::to_integer<uint32_t>(bytes[at + 1]));
    }
    return words;
}

Result<std::string> ParseKeyPhrase(const std::vector<std::string>& typed) {
    const std::vector<std::string> words = Cut(typed);
    std::array<std::byte, kSecretBytes + 1> bytes{};
    std::string key;
    for (size_t i = 0; i < words.size() && i < kKeyWords; ++i) {
        const auto bits = BitsOfWord(words[i]);
        if (!bits) {
            return MakeError(ErrorCode::kUsage,
                             "'{}' is not a word of a key phrase: such words have five letters, "
                             "consonants and vowels (a, i, o, u) in turn, such as bizol. 'weft up' "
                             "on the first host prints the phrase",
                             words[i]);
        }
        bytes[2 * i] = static_cast<std::byte>(*bits >> 8);
        bytes[2 * i + 1] = static_cast<std::byte>(*bits & 255);
        key += (i > 0 ? "-" : "") + words[i];
    }
    if (words.size() != kKeyWords) {
        return MakeError(ErrorCode::kUsage, "a key phrase has {} words; found {}", kKeyWords,
                         words.size());
    }
    const auto secret = std::span(bytes).first(kSecretBytes);
    if (std::to_integer<uint8_t>(bytes.back()) != CheckOf(secret)) {
        return MakeError(ErrorCode::kUsage,
                         "one of these words is mistyped (their checksum is wrong): {}", key);
    }
    return key;
}

bool IsKeyPhrase(const std::string& key) {
    const auto parsed = ParseKeyPhrase({key});
    return parsed.ok() && *parsed == key;
}

}  // namespace weft::fleet
