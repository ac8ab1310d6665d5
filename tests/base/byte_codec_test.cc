#include "base/byte_codec.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

struct Item {
    std::string name;
    int32_t count = 0;
    bool operator==(const Item&) const = default;
};

struct Message {
    bool flag = false;
    int64_t number = 0;
    std::string text, cut;
    std::vector<Item> items;
    std::vector<uint32_t> numbers;
    bool operator==(const Message&) const = default;
};

void List(auto& fields, auto& message) {
    fields(message.flag, message.number);
    fields.Text(message.text, 5);
    fields.Cut(message.cut, 3, 8);
    fields.List(message.items, 4, [](auto& each, auto& item) {
        each.Text(item.name, 5);
        each(item.count);
    });
    fields.CutList(message.numbers, 2);
    fields.Check(message.number >= 0, "has a negative number");
}

const Message kMessage{true, 7, "abcde", "xyz", {{"a", 1}, {"", -2}}, {3, 4}};

template <typename Length = uint32_t>
std::string Written(const Message& message) {
    ByteFieldWriter<Length> writer;
    List(writer, message);
    return writer.TakeText();
}

// The error of a reader of these bytes; "": none.
std::string ErrorOf(std::string_view bytes, Message* read = nullptr) {
    ByteFieldReader<> reader(bytes);
    Message message;
    List(reader, message);
    if (read != nullptr) *read = message;
    return reader.done() ? "" : reader.ok() ? "more bytes" : reader.wrong();
}

TEST(ByteCodec, WhatIsWrittenIsRead) {
    Message read;
    EXPECT_EQ(ErrorOf(Written(kMessage), &read), "");
    EXPECT_EQ(read, kMessage);
    const std::string narrow = Written<uint8_t>(kMessage);
    ByteFieldReader<uint8_t> reader(narrow);
    List(reader, read);
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(read, kMessage);
}

TEST(ByteCodec, TextsAndListsAreCutByBothSides) {
    Message longer = kMessage, read;
    longer.cut = "xyz and more";
    longer.numbers = {3, 4, 5};
    EXPECT_EQ(Written(longer), Written(kMessage));
    // A peer that cuts later.
    ByteFieldWriter<> writer;
    writer.Cut("xyz+more", 8);
    ByteFieldReader<> reader(writer.bytes());
    reader.Cut(read.cut, 3, 8);
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(read.cut, "xyz");
}

TEST(ByteCodec, CutBytesAreRefusedAtEveryByte) {
    const std::string whole = Written(kMessage);
    for (size_t size = 0; size < whole.size(); ++size) {
        EXPECT_NE(ErrorOf(whole.substr(0, size)), "") << size;
    }
    EXPECT_EQ(ErrorOf(whole + "x"), "more bytes");
}

TEST(ByteCodec, ValuesThatNoWriterWritesAreRefused) {
    std::string bytes = Written(kMessage);
    bytes[0] = 2;
    EXPECT_EQ(ErrorOf(bytes), "has a flag that is neither on nor off");
    Message message = kMessage;
    message.number = -1;
    EXPECT_EQ(ErrorOf(Written(message)), "has a negative number");
    message = kMessage;
    message.text = "abcdef";
    EXPECT_EQ(ErrorOf(Written(message)), "has a string that is too long");
    message = kMessage;
    message.items.resize(5);
    EXPECT_EQ(ErrorOf(Written(message)), "has an impossible count");
}

// A count is compared with the remaining bytes before memory is allocated.
TEST(ByteCodec, HostileCountsAllocateNothing) {
    ByteFieldWriter<> writer;
    writer(std::numeric_limits<uint32_t>::max(), uint64_t{0});
    constexpr size_t kAny = std::numeric_limits<size_t>::max();
    std::vector<Item> items;
    std::vector<uint64_t> numbers;
    std::string text;
    ByteFieldReader<> of_items(writer.bytes()), of_numbers(writer.bytes()), of_text(writer.bytes());
    of_items.List(items, kAny, [](auto& each, auto& item) { each(item.count); });
    of_numbers.List(numbers, kAny);
    of_text.Text(text, kAny);
    for (const ByteFieldReader<>* reader : {&of_items, &of_numbers, &of_text}) {
        EXPECT_FALSE(reader->ok());
    }
    EXPECT_EQ(items.capacity() + numbers.capacity(), 0u);
    ByteReader list(writer.bytes());
    EXPECT_TRUE(list.TakeList<uint64_t>(std::numeric_limits<uint64_t>::max() / 4).empty());
    EXPECT_STREQ(list.wrong(), "is cut short");
}

}  // namespace
}  // namespace weft
