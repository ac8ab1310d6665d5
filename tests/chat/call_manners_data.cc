#include "chat/call_manners.h"

#include <string>

#include "chat/template/chat_template.h"

namespace weft::chat {
namespace {

using enum ToolCallFormat;

std::string TaggedCall(const std::string& city, int days) {
    return "<tool_call>\n" + JsonCall(city, days) + "\n</tool_call>";
}

std::string CoderCall(const std::string& city, int days) {
    return "<tool_call>\n<function=weather>\n<parameter=city>\n" + city +
           "\n</parameter>\n<parameter=days>\n" + std::to_string(days) +
           "\n</parameter>\n</function>\n</tool_call>";
}

std::string BareCoderCall(const std::string& city, int days) {
    return "<function=weather>\n<parameter=city>\n" + city + "\n</parameter>\n<parameter=days>\n" +
           std::to_string(days) + "\n</parameter>\n</function>\n</tool_call>";
}

std::string Glm45Call(const std::string& city, int days) {
    return "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>" + city +
           "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>" + std::to_string(days) +
           "</arg_value>\n</tool_call>";
}

std::string Glm47Call(const std::string& city, int days) {
    return "<tool_call>weather<arg_key>city</arg_key><arg_value>" + city +
           "</arg_value><arg_key>days</arg_key><arg_value>" + std::to_string(days) +
           "</arg_value></tool_call>";
}

std::string LongcatCall(const std::string& city, int days) {
    return "<longcat_tool_call>\n" + JsonCall(city, days) + "\n</longcat_tool_call>";
}

std::string LongcatTagsCall(const std::string& city, int days) {
    return "<longcat_tool_call>weather\n<longcat_arg_key>city</longcat_arg_key>\n"
           "<longcat_arg_value>" +
           city +
           "</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n<longcat_arg_value>" +
           std::to_string(days) + "</longcat_arg_value>\n</longcat_tool_call>";
}

std::string HunyuanCall(const std::string& city, int days) {
    return "<tool_call:opensource>weather<tool_sep:opensource>\n<arg_key:opensource>city"
           "</arg_key:opensource>\n<arg_value:opensource>" +
           city +
           "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
           "<arg_value:opensource>" +
           std::to_string(days) + "</arg_value:opensource>\n</tool_call:opensource>";
}

std::string Hunyuan4Call(const std::string& city, int days) {
    std::string call = HunyuanCall(city, days);
    constexpr std::string_view kBehind = "<tool_sep:opensource>";
    return call.erase(call.find(kBehind), kBehind.size());
}

std::string HunyuanPreviewCall(const std::string& city, int days) {
    return "<tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>" + city +
           "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>" + std::to_string(days) +
           "</arg_value>\n</tool_call>";
}

std::string SeedCall(const std::string& city, int days) {
    return "<seed:tool_call>\n<function=weather>\n<parameter=city>" + city +
           "</parameter>\n<parameter=days>" + std::to_string(days) +
           "</parameter>\n</function>\n</seed:tool_call>";
}

std::string KimiCall(const std::string& city, int days) {
    return "<|tool_call_begin|>functions.weather:3<|tool_call_argument_begin|>" +
           JsonArguments(city, days) + "<|tool_call_end|>";
}

std::string MiniMaxCall(const std::string& city, int days) {
    return "<invoke name=\"weather\">\n<parameter name=\"city\">" + city +
           "</parameter>\n<parameter name=\"days\">" + std::to_string(days) +
           "</parameter>\n</invoke>";
}

std::string Gemma4Call(const std::string& city, int days) {
    return "<|tool_call>call:weather{city:<|\"|>" + city + "<|\"|>,days:" + std::to_string(days) +
           "}<tool_call|>";
}

std::string Olmo3Call(const std::string& city, int days) {
    return "weather(city=" + OrderedJson(city).dump() + ", days=" + std::to_string(days) + ")";
}

std::string ApertusCall(const std::string& city, int days) {
    return "{\"weather\": " + JsonArguments(city, days) + "}";
}

std::string DeepSeekV3Call(const std::string& city, int days) {
    return Bar(kCall + "begin") + "function" + Bar("sep") + "weather\n```json\n" +
           JsonArguments(city, days) + "\n```" + Bar(kCall + "end");
}

std::string DeepSeekV31Call(const std::string& city, int days) {
    return Bar(kCall + "begin") + "weather" + Bar("sep") + JsonArguments(city, days) +
           Bar(kCall + "end");
}

std::string MistralCall(const std::string& city, int days) {
    return "[TOOL_CALLS]weather[ARGS]" + JsonArguments(city, days);
}

std::string MistralSmallCall(const std::string& city, int days) {
    return "[TOOL_CALLS]weather[CALL_ID]aB3dE6gH9[ARGS]" + JsonArguments(city, days);
}

std::string CohereCall(const std::string& city, int days) {
    return R"({"tool_call_id": "0", "tool_name": "weather", "parameters": )" +
           JsonArguments(city, days) + "}";
}

std::string SolarCall(const std::string& city, int days) {
    return "<|tool_call:begin|>a1b2c3<|tool_call:name|>weather<|tool_call:args|>" +
           JsonArguments(city, days) + "<|tool_call:end|>";
}

std::string MiniMaxM3Call(const std::string& city, int days) {
    const std::string mark = "]<]minimax[>[";
    return mark + "<invoke name=\"weather\">" + mark + "<city>" + city + mark + "</city>" + mark +
           "<days>" + std::to_string(days) + mark + "</days>" + mark + "</invoke>";
}

std::string DsmlCall(const std::string& city, int days) {
    return Dsml("invoke name=\"weather\"") + "\n" +
           Dsml("parameter name=\"city\" string=\"true\"") + city + Dsml("/parameter") + "\n" +
           Dsml("parameter name=\"days\" string=\"false\"") + std::to_string(days) +
           Dsml("/parameter") + "\n" + Dsml("/invoke");
}

std::string TightCall(const std::string& city, int days) {
    return "<tool_call>\n<function=weather>\n<parameter=city>" + city +
           "</parameter>\n<parameter=days>" + std::to_string(days) +
           "</parameter>\n</function>\n</tool_call>";
}

std::string GigaChatCall(const std::string& city, int days) {
    return "<|message_sep|>\n\nfunction call<|role_sep|>\n" + JsonCall(city, days);
}

std::string GigaChat31Call(const std::string& city, int days) {
    return "<|function_call|>" + JsonCall(city, days);
}

// GigaChat 3.5's tags are DeepSeek's with another name.
std::string Gcml(std::string text) {
    for (size_t at = 0; (at = text.find("DSML", at)) != text.npos;) text.replace(at, 4, "GCML");
    return text;
}

std::string GcmlCall(const std::string& city, int days) {
    return Gcml(DsmlCall(city, days));
}

std::string MiniCpmCall(const std::string& city, int days) {
    return "<function name=\"weather\"><param name=\"city\">" + city +
           "</param><param name=\"days\">" + std::to_string(days) + "</param></function>";
}

std::string MiniCpmCdataCall(const std::string& city, int days) {
    return "<function name=\"weather\"><param name=\"city\"><![CDATA[" + city +
           "]]></param><param name=\"days\">" + std::to_string(days) + "</param></function>";
}

std::string FunctionGemmaCall(const std::string& city, int days) {
    return "<start_function_call>call:weather{city:<escape>" + city +
           "<escape>,days:" + std::to_string(days) + "}<end_function_call>";
}

std::string Glm4Call(const std::string& city, int days) {
    return "weather\n" + JsonArguments(city, days);
}

std::string CommandRCall(const std::string& city, int days) {
    return "    {\n        \"tool_name\": \"weather\",\n        \"parameters\": " +
           JsonArguments(city, days) + "\n    }";
}

std::string InternCall(const std::string& city, int days) {
    return "<|action_start|><|plugin|>\n{\"name\": \"weather\", \"parameters\": " +
           JsonArguments(city, days) + "}<|action_end|>";
}

std::string HunyuanDenseCall(const std::string& city, int days) {
    return "<tool_call>weather\n```json\n" + JsonArguments(city, days) + "\n```</tool_call>";
}

std::string LfmRawCall(const std::string& city, int days) {
    return "weather(city='" + city + "', days=" + std::to_string(days) + ")";
}

// Arguments between tags.
std::vector<Manner> TaggedManners() {
    return {
        {kQwenCoder, "coder", "", "\n", "", CoderCall, "<think>", "</think>", "<|im_end|>"},
        {kQwenCoder, "coder without tags", "", "\n", "", BareCoderCall, "<think>", "</think>", ""},
        {kGlm, "glm 4.5", "\n", "\n", "", Glm45Call, "\n<think>", "</think>\n", "<|observation|>"},
        {kGlm, "glm 4.7", "", "", "", Glm47Call, "<think>", "</think>", "<|observation|>"},
        {kLongcat, "longcat 2", "", "\n", "", LongcatTagsCall, "<longcat_think>\n",
         "\n</longcat_think>\n", "</longcat_s>"},
        {kHunyuan, "hy3", "<tool_calls:opensource>\n", "\n", "\n</tool_calls:opensource>",
         HunyuanCall, "<think:opensource>", "</think:opensource>", ""},
        {kHunyuan, "hy4", "<tool_calls:opensource>\n", "\n", "\n</tool_calls:opensource>",
         Hunyuan4Call, "<think:opensource>", "</think:opensource>", ""},
        {kHunyuanPreview, "hy3-preview", "<tool_calls>\n", "\n", "\n</tool_calls>",
         HunyuanPreviewCall, "<think>", "</think>", ""},
        {kSeed, "seed-oss", "", "\n", "", SeedCall, "<seed:think>", "</seed:think>", "<seed:eos>"},
        {kMiniMax, "minimax", "\n<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>",
         MiniMaxCall, "<think>\n", "\n</think>\n\n", "[e~["},
        {kDsml, "deepseek v3.2", Dsml("function_calls") + "\n", "\n",
         "\n" + Dsml("/function_calls"), DsmlCall, "<think>", "</think>", ""},
        {kDsml, "deepseek v4", Dsml("tool_calls") + "\n", "\n", "\n" + Dsml("/tool_calls"),
         DsmlCall, "<think>", "</think>", ""},
        {kMiniMaxM3, "minimax m3", "]<]minimax[>[<tool_call>\n", "\n",
         "\n]<]minimax[>[</tool_call>", MiniMaxM3Call, "<mm:think>", "</mm:think>", "[e~["},
        {kQwenCoderTight, "mimo v2", "", "\n", "", TightCall, "<think>", "</think>", "<|im_end|>"},
        {kGigaChat, "gigachat 3.5", Gcml(Dsml("tool_calls")) + "\n", "\n",
         "\n" + Gcml(Dsml("/tool_calls")), GcmlCall, "<think>", "</think>", "</s>"},
        {kMiniCpm5, "minicpm 5", "", "\n", "", MiniCpmCall, "<think>\n", "\n</think>\n\n",
         "<|im_end|>"},
        {kMiniCpm5, "minicpm 5's CDATA", "", "\n", "", MiniCpmCdataCall, "<think>\n",
         "\n</think>\n\n", "<|im_end|>"},
        {kGlm4, "glm-4-0414", "", "<|assistant|>", "", Glm4Call, "<think>\n", "\n</think>\n",
         "<|observation|>"},
    };
}

// Arguments as JSON, and in notations like it.
std::vector<Manner> OtherManners() {
    return {
        {kQwen, "qwen", "", "\n", "", TaggedCall, "<think>\n", "\n</think>\n\n", "<|im_end|>"},
        {kKimi, "kimi", "<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>", KimiCall,
         "<think>", "</think>", "<|im_end|>"},
        {kGemma, "gemma 4", "", "", "", Gemma4Call, "<|channel>thought\n", "\n<channel|>",
         "<|tool_response>"},
        {kGranite, "granite", "<|tool_call|>[", ", ", "]", JsonCall, "<think>", "</think>",
         "<|end_of_text|>"},
        {kPhi, "phi 4 mini", "<|tool_call|>[", ", ", "]<|/tool_call|>", JsonCall, "<think>",
         "</think>", "<|end|>"},
        {kPhi, "phi 4 mini's functools", "functools[", ", ", "]", JsonCall, "<think>", "</think>",
         ""},
        {kOlmo, "olmo 3", "<function_calls>", "\n", "</function_calls>", Olmo3Call, "<think>",
         "</think>", "<|im_end|>"},
        {kLfm2, "lfm 2", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>", Olmo3Call, "<think>",
         "</think>", "<|im_end|>"},
        {kDeepSeek, "deepseek v3", Bar(kCalls + "begin"), "\n", Bar(kCalls + "end"), DeepSeekV3Call,
         "<think>", "</think>", ""},
        {kDeepSeek, "deepseek v3.1", Bar(kCalls + "begin"), "", Bar(kCalls + "end"),
         DeepSeekV31Call, "<think>", "</think>", ""},
        {kMistral, "mistral v3", "[TOOL_CALLS] [", ", ", "]", JsonCall, "[THINK]", "[/THINK]",
         "</s>"},
        {kMistral, "mistral v13", "", "", "", MistralCall, "[THINK]", "[/THINK]", "</s>"},
        {kMistral, "mistral small 3", "", "", "", MistralSmallCall, "[THINK]", "[/THINK]", "</s>"},
        {kCohere, "command a", "<|START_ACTION|>[\n    ", ",\n    ", "\n]<|END_ACTION|>",
         CohereCall, "<|START_THINKING|>", "<|END_THINKING|>", "<|END_OF_TURN_TOKEN|>"},
        {kNemotron, "nemotron nano 2", "<TOOLCALL>[", ", ", "]</TOOLCALL>", JsonCall, "<think>\n\n",
         "\n</think>\n\n", "\n<SPECIAL_12>"},
        {kApertus, "apertus", "<|tools_prefix|>[", ", ", "]<|tools_suffix|>", ApertusCall,
         "<|inner_prefix|>", "<|inner_suffix|>", "<|assistant_end|>"},
        {kSolar, "solar open", "<|tool_calls|>", "", "<|calls|>", SolarCall, "<|think|>",
         "<|end|><|begin|>assistant<|content|>", "<|end|>"},
        {kLongcat, "longcat", "", "\n", "", LongcatCall, "<longcat_think>\n",
         "\n</longcat_think>\n", "</longcat_s>"},
        {kJamba, "jamba", "<tool_calls>[\n    ", ",\n    ", "\n]</tool_calls>", JsonCall,
         "<think>\n", "\n</think>\n\n", "<|eom|>"},
        {kErnie, "ernie 4.5", "", "\n", "", TaggedCall, "<think>\n", "\n</think>\n\n", "</s>"},
        {kHunyuanA13b, "hunyuan a13b", "<tool_calls>[", ", ", "]</tool_calls>", JsonCall,
         "<think>\n", "\n</think>\n", "<|eos|>"},
        {kHunyuanA13b, "hunyuan dense", "<tool_calls>", "\n", "</tool_calls>", HunyuanDenseCall,
         "<think>\n", "\n</think>\n", "<|eos|>"},
        {kGigaChat, "gigachat 3", "", "", "", GigaChatCall, "<think>", "</think>",
         "<|message_sep|>\n\n"},
        {kGigaChat, "gigachat 3.1", "", "", "", GigaChat31Call, "<think>", "</think>", "</s>"},
        {kApriel, "apriel", "\n<tool_calls>[", ", ", "]</tool_calls>", JsonCall,
         "Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n",
         "\n[END FINAL RESPONSE]\n<|end|>"},
        {kFunctionGemma, "functiongemma", "", "", "", FunctionGemmaCall, "<think>", "</think>",
         "<start_function_response>"},
        {kCommandR, "command r", "Action: ```json\n[\n", ",\n", "\n]```", CommandRCall, "<think>",
         "</think>", "<|END_OF_TURN_TOKEN|>"},
        {kInternS1, "intern-s1", "", "\n", "", InternCall, "<think>", "</think>", "<|im_end|>"},
        {kLfm2, "lfm 2.5", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>", LfmRawCall,
         "<think>", "</think>", "<|im_end|>"},
    };
}

}  // namespace

std::vector<Manner> Manners() {
    std::vector<Manner> manners = TaggedManners();
    for (Manner& manner : OtherManners()) manners.push_back(std::move(manner));
    return manners;
}

std::string Dsml(const std::string& words) {
    const std::string open = words.starts_with("/") ? "</" : "<";
    return open + "\xEF\xBD\x9C" + "DSML" + "\xEF\xBD\x9C" +
           words.substr(words.starts_with("/") ? 1 : 0) + ">";
}

std::string Bar(const std::string& words) {
    return "<\xEF\xBD\x9Ctool\xE2\x96\x81" + words + "\xEF\xBD\x9C>";
}

std::string JsonCall(const std::string& city, int days) {
    return R"({"name": "weather", "arguments": )" + JsonArguments(city, days) + "}";
}

std::string JsonArguments(const std::string& city, int days) {
    return OrderedJson{{"city", city}, {"days", days}}.dump();
}

}  // namespace weft::chat
