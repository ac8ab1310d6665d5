#include "cli/command_line/habit_words.h"

#include <algorithm>

namespace weft::cli {
namespace {

constexpr Synonym kSynonyms[] = {
    {"-m --model --model-name-or-path --model-path --base-model", kModelWord},
    {"-c --ctx-size --max-model-len --context-length --num-ctx", "--ctx"},
    {"--n-predict --max-new-tokens --max-tokens --num-predict --numpredict", "--predict"},
    {"--temperature", "--temp"},
    {"--repetition-penalty", "--repeat-penalty"},
    {"--typical-p", "--typical"},
    {"--top-n-sigma", "--top-nsigma"},
    {"-s --random-seed", "--seed"},
    {"-r --reverse-prompt", "--stop"},
    {"-sys --system-prompt", "--system"},
    {"-no-cnv --no-conversation", "--raw"},
    {"-cnv --conversation", "--chat"},
    {"-ub --ubatch-size --chunked-prefill-size", "--prefill-chunk"},
    {"-md --model-draft --speculative-draft-model-path", "--draft"},
    {"--draft-max --draft-n --num-speculative-tokens", "--draft-tokens"},
    {"-dev", "--device"},
    {"-ngl --n-gpu-layers --num-gpu", "--gpu-layers"},
    {"-cmoe", "--cpu-moe"},
    {"-ncmoe", "--n-cpu-moe"},
    {"-ot", "--override-tensor"},
    {"-tp --tensor-parallel-size --tp-size", "--tp"},
    {"-pp --pipeline-parallel-size --pp-size", "--pp"},
    {"--max-num-seqs --max-running-requests", "--max-seqs"},
    {"--max-num-batched-tokens", "--step-tokens"},
    {"--max-total-tokens", "--kv-tokens"},
    {"-ctk --cache-type-k", "--kv-dtype", Taker::kKeys},
    {"-ctv --cache-type-v", "--kv-dtype", Taker::kValues},
    {"--served-model-name", "--name"},
    {"-a", "--name", Taker::kInference},
    {"-p", "--port", Taker::kInference},
    {"--embedding --is-embedding", "--embeddings"},
    {"--no-enable-prefix-caching --no-cache-prompt --disable-radix-cache", "--no-prefix-cache"},
    {"--disable-log-requests --no-enable-log-requests --log-disable", "--no-access-log"},
    {"--ssl-cert-file --ssl-certfile", "--tls-cert"},
    {"--ssl-key-file --ssl-keyfile", "--tls-key"},
    // Training.
    {"--learning-rate", "--lr"},
    {"--num-train-epochs --num-epochs --n-epochs", "--epochs"},
    {"--max-steps --train-iters --iters", "--steps"},
    {"--per-device-train-batch-size --micro-batch-size --per-device-batch-size", "--micro-batch"},
    {"--gradient-accumulation-steps --grad-accumulation-steps", "--grad-accum"},
    {"--max-seq-length --max-length --cutoff-len --sequence-len --model-max-length "
     "--block-size --seq-length",
     "--seq-len"},
    {"--lr-scheduler-type --lr-scheduler --lr-schedule --lr-decay-style", "--schedule"},
    {"--num-warmup-steps --lr-warmup-iters", "--warmup-steps"},
    {"--lr-warmup-fraction", "--warmup-ratio"},
    {"--min-lr-ratio", "--min-lr-rate"},
    {"--num-decay-steps --lr-wsd-decay-iters", "--decay-steps"},
    {"--lr-wsd-decay-style", "--decay-type"},
    {"--max-grad-norm --clip-grad --gradient-clip-val", "--clip"},
    {"--adam-epsilon --adam-eps", "--eps"},
    {"--lora-r --lora-rank --peft-lora-r", "--lora"},
    {"--lora-target --lora-target-modules --peft-lora-modules --target-modules", "--lora-targets"},
    {"--peft-lora-alpha", "--lora-alpha"},
    {"--use-rslora", "--rslora"},
    {"--save-steps --save-interval --checkpointing-steps", "--save-every"},
    {"--save-total-limit", "--keep-last"},
    {"--eval-steps --eval-interval", "--eval-every"},
    {"--resume-from-checkpoint", "--resume"},
    {"--train-file --train-files --dataset --dataset-name --dataset-path --data-path", "--data"},
    {"--val-size --val-set-size", "--test-split"},
    {"--overwrite-output-dir --overwrite-output", "--overwrite"},
    {"--deepspeed --deepspeed-config", "--ds-config"},
    {"--router-aux-loss-coef --moe-aux-loss-coeff", "--router-aux-loss"},
    {"--tensor-model-parallel-size", "--tp"},
    {"--pipeline-model-parallel-size", "--pp"},
    // Former names of Weft's own flags, one per row.
    {"--chunk", "--prefill-chunk", Taker::kFormer},
    {"--kv", "--kv-dtype", Taker::kFormer},
    {"--split", "--tensor-split", Taker::kFormer},
    {"--wait-for", "--expect-workers", Taker::kFormer},
    {"--rejoin-ms", "--restart-timeout-ms", Taker::kFormer},
    {"--gpu-sum", "--gpu-allreduce", Taker::kFormer},
    {"--wire", "--allreduce-dtype", Taker::kFormer},
    {"--lookup", "--prompt-lookup", Taker::kFormer},
    {"--no-proof", "--skip-self-test", Taker::kFormer}};

constexpr ValueSynonym kValueSynonyms[] = {{"-n --predict", "-2", "-1"},
                                           {"--top-k", "-1", "0"},
                                           {"--seed", "-1", ""},
                                           {"--device", "none", "cpu"},
                                           {"--gpu-layers", "all", "1048576"},
                                           {"--gpu-layers", "auto", "1048576"},
                                           {"--device", "gpu", "vulkan"},
                                           {"--generation-config", "vllm", "none"},
                                           {"--resume", "True", "auto"},
                                           {"--resume", "true", "auto"},
                                           {"--resume", "latest", "auto"},
                                           {"--schedule", "constant_with_warmup", "constant"},
                                           {"--schedule", "cosine_with_min_lr", "cosine"},
                                           {"--schedule", "WSD", "warmup_stable_decay"},
                                           {"--schedule", "wsd", "warmup_stable_decay"},
                                           {"--decay-type", "minus_sqrt", "1-sqrt"}};

constexpr Advice kAdvices[] = {
    {"-ngld --n-gpu-layers-draft --gpu-layers-draft",
     "a draft model is on one device: --device names it"},
    {"-ts -sm --split-mode -mg --main-gpu",
     "each GPU is a rank: --tp 3 --tensor-split 3,2,1 gives three ranks these shares of each "
     "layer"},
    {"--rpc", "each host runs 'weft worker' or 'weft up': --hosts b,c or --cluster home"},
    {"--jinja --no-jinja --chat-template --chat-template-file",
     "the model's own chat template is always used (--raw, of 'weft run', uses none); leave the "
     "flag out"},
    {"--mlock --no-mmap --mmap -mmp --numa --load-format",
     "weights are always read into memory; leave the flag out"},
    {"-b --batch-size", "--prefill-chunk N is the most prompt tokens in one step"},
    {"-np --parallel", "--max-seqs N, of 'weft serve': each sequence has the whole --ctx"},
    {"--kv-cache-dtype -ctkd -ctvd --cache-type-k-draft --cache-type-v-draft",
     "--kv-dtype f16, bf16, f32, q8_0, q5_1 or q4_0 is the type of keys and values, also of a "
     "draft "
     "model's"},
    {"-hf --hf-repo -hfr -hfd -hfrd --hf-repo-draft",
     "the repository is the MODEL: OWNER/NAME:TYPE --pull, after 'weft run' or 'weft serve'"},
    {"-hff --hf-file -mu --model-url -dr --docker-repo",
     "the file is part of the MODEL: OWNER/NAME:FILE.gguf --pull"},
    {"-hft --hf-token", "HF_TOKEN in the environment holds the token"},
    {"--lora-modules --enable-lora --lora-paths --lora-scaled",
     "--lora NAME=FOLDER, of 'weft serve', adds an adapter"},
    {"--mmproj -mm --mmproj-url -mmu --no-mmproj --no-mmproj-offload --image --audio "
     "--limit-mm-per-prompt --language-model-only",
     "Weft reads text only; leave the flag out"},
    {"--grammar --grammar-file -j --json-schema -jf --json-schema-file --format",
     "'weft serve' takes a response_format in each request (docs/structured.md)"},
    {"-i --interactive -if --interactive-first",
     "'weft run MODEL' without a prompt, at a terminal, is a conversation"},
    {"--model-dir --models-dir --models-preset --models-autoload --models-max",
     "'weft serve MODEL MODEL' serves several models and loads each on demand; --max-loaded N "
     "limits how many are loaded"},
    {"--keepalive --keep-alive", "'weft serve MODEL' keeps the model loaded until it is stopped"},
    {"--think --no-think --thinking --no-thinking --enable-thinking --disable-thinking "
     "--hidethinking --reasoning-format --reasoning-budget --reasoning-effort --enable-reasoning "
     "--chat-template-kwargs --default-chat-template-kwargs --reasoning -rea",
     "--chat-template-kwargs '{\"enable_thinking\": false}', of 'weft run' and 'weft serve', turns "
     "reasoning off. 'weft serve' also takes --reasoning-budget, and each request "
     "reasoning_effort"},
    {"--host --port", "'weft serve' listens: weft serve MODEL --host HOST --port PORT"},
    {"--api-key", "--api-key-file FILE; 'weft key new NAME' makes a key for it"},
    {"--gpu-memory-utilization --mem-fraction-static",
     "memory follows from --ctx, and for 'weft serve' --max-seqs and --kv-tokens; leave the flag "
     "out"},
    {"--dtype -q --quantization",
     "weights keep the types of their file; 'weft quantize' writes a file of another type"},
    {"-ep --enable-expert-parallel --expert-parallel-size --ep-size",
     "--ep N makes N expert groups of the tensor ranks"},
    {"-dp --data-parallel-size --dp-size --api-server-count",
     "start one 'weft serve' for each replica"},
    {"--distributed-executor-backend --nnodes --node-rank --dist-init-addr",
     "--local N starts N ranks on this host; --hosts or --cluster names other hosts"},
    {"--cpu-offload-gb --swap-space -ot --override-tensor -otd --override-tensor-draft -cmoe "
     "--cpu-moe -cmoed --cpu-moe-draft -ncmoe --n-cpu-moe -ncmoed --n-cpu-moe-draft -nkvo "
     "--no-kv-offload -kvo --kv-offload --no-op-offload",
     "a rank keeps its weights and its KV cache on one device. A model that is too large for it "
     "needs more ranks: --tp N, --pp N or --hosts"},
    {"-tb --threads-batch -td --threads-draft -tbd --threads-batch-draft --threads-http",
     "--threads N counts for prompts and answers"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n "
     "-gaw --grp-attn-w --override-kv --hf-overrides --model-impl --max-position-embeddings",
     "the model's file sets this. Edit the config.json of a Hugging Face folder, or leave the flag "
     "out"},
    {"--presence-penalty --frequency-penalty",
     "each request to 'weft serve' has its own presence_penalty and frequency_penalty"},
    {"--seed", "each request to 'weft serve' has its own seed"},
    {"-l --logit-bias", "each request to 'weft serve' has its own logit_bias"},
    {"--dry-penalty-last-n --dry-sequence-breaker --repeat-last-n",
     "each request to 'weft serve' has its own dry_penalty_last_n, dry_sequence_breakers and "
     "repeat_last_n"},
    {"--samplers --sampling-seq --sampler-seq --dynatemp-range --dynatemp-exp --mirostat "
     "--mirostat-lr --mirostat-ent --tfs",
     "--temp, --top-k, --top-p, --min-p, --typical, --top-nsigma, --xtc-probability, "
     "--dry-multiplier and --repeat-penalty choose how Weft samples; leave the flag out"},
    {"--override-generation-config",
     "--temp, --top-k, --top-p, --min-p and --repeat-penalty override the model's values"},
    {"-e --escape --no-escape",
     "the prompt is taken as it is, and a line break in it stays one; leave the flag out"},
    {"-sysf --system-prompt-file", "--system \"$(cat FILE)\" passes the text of a file"},
    {"--list-devices", "'weft inspect --devices' lists the GPUs"},
    {"--enforce-eager --enable-chunked-prefill --enable-prefix-caching --cont-batching -cb "
     "--cache-prompt --async-scheduling --warmup --no-warmup --cache-reuse --kv-unified -kvu "
     "--swa-full --cuda-graph-max-bs --disable-cuda-graph --compilation-config -O -fa --flash-attn "
     "--attention-backend -nr --no-repack --repack --check-tensors --no-host -fit --fit -st "
     "--single-turn --offline --tokenizer --tokenizer-path --tokenizer-mode "
     "--color -co --nowordwrap --simple-io --no-display-prompt --display-prompt -mli "
     "--multiline-input --log-disable --log-file -lv --log-verbosity --verbosity --log-level "
     "--uvicorn-log-level --perf --no-perf --special",
     "Weft always does what this asks for, or needs no such choice; leave the flag out"},
    {"--keep --context-shift --no-context-shift --prompt-cache --prompt-cache-all "
     "--prompt-cache-ro -dt --defrag-thold --ctx-checkpoints --swa-checkpoints -cram "
     "-sps --slot-prompt-similarity --block-size --page-size -nocb "
     "--no-cont-batching",
     "Weft manages the KV cache itself, and --ctx sets its size; leave the flag out"},
    {"--prio --prio-batch --poll --poll-batch -C --cpu-mask -Cr --cpu-range --cpu-strict -Cb "
     "--cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch",
     "the operating system schedules the threads: 'nice' and 'taskset' before 'weft' change that"},
    {"--enable-auto-tool-choice --tool-call-parser --reasoning-parser",
     "the model's template decides how tools and thoughts are written; leave the flag out"},
    {"--trust-remote-code", "Weft runs no code of a model; leave the flag out"},
    {"--download-dir", "HF_HUB_CACHE in the environment names the folder"},
    {"--revision", "the MODEL names it: OWNER/NAME@REVISION"},
    {"--insecure", "HF_ENDPOINT in the environment names another hub; leave the flag out"},
    {"--speculative-config -sc --speculative-algorithm --draft-min --draft-n-min --draft-p-min",
     "--prompt-lookup, or --draft MODEL --draft-tokens N, guesses tokens ahead"},
    {"--task --runner --convert", "--embeddings, of 'weft serve', serves embeddings"},
    {"--reranking --rerank", "--pooling rank, of 'weft serve', scores pairs of texts"},
    {"-to --timeout --timeout-keep-alive",
     "--idle-timeout-ms, --body-timeout-ms and --stall-timeout-ms, of 'weft serve', end a "
     "connection that is silent"},
    {"--allowed-origins --cors", "--allow-origin ORIGIN, of 'weft serve', allows an origin"},
    {"--path --api-prefix --root-path",
     "the page and the routes have fixed paths; a reverse proxy can move them"},
    {"-d --daemon --detach --background",
     "'weft serve MODEL --restart --unit' prints a unit that systemd runs in the background"},
    {"--metrics --webui --no-webui --slots --no-slots --props --enable-metrics",
     "/metrics, /props and the page are always served; leave the flag out"}};

// Flags of transformers' Trainer, TRL, axolotl, LLaMA-Factory and Megatron-LM.
constexpr Advice kTrainingAdvices[] = {
    {"--stage --rlhf-type --rl --pref-loss",
     "--loss dpo, ipo, orpo, kto, simpo, reward (rm) or grpo names the loss; texts (pt) and "
     "answers (sft) need no flag"},
    {"--pref-beta", "--beta is the strength of the reference model"},
    {"--bf16 --fp16 --tf32 --pure-bf16 --mixed-precision --torch-dtype",
     "--dtype bf16 (the default), f16 or f32 is the type of weights and products"},
    {"--load-in-4bit --load-in-8bit --quantization-bit --adapter --use-peft --finetuning-type "
     "--quantization-method",
     "--lora RANK trains adapters, beside quantized weights too if MODEL is a quantized GGUF "
     "file; without --lora all weights are trained"},
    {"--gradient-checkpointing --recompute-activations --recompute-granularity",
     "--recompute full, selective or none; auto, the default, recomputes what memory requires"},
    {"--adam-beta1 --adam-beta2", "--betas 0.9,0.999 sets both"},
    {"--use-wandb --wandb-project",
     "--report-to wandb writes an offline run of the project in WANDB_PROJECT"},
    {"--logging-steps --logging-strategy --logging-dir --log-interval --disable-tqdm --plot-loss",
     "each update is printed, and --output-dir has event files of TensorBoard; leave the flag "
     "out"},
    {"--eval-strategy --evaluation-strategy --do-eval --evals-per-epoch --eval-on-start",
     "--test-split 0.1 holds records out, and --eval-every N evaluates them every N updates"},
    {"--save-strategy --saves-per-epoch", "--save-every N writes a checkpoint every N updates"},
    {"--do-train --remove-unused-columns --label-names --group-by-length "
     "--dataloader-num-workers --dataloader-pin-memory --preprocessing-num-workers "
     "--ddp-find-unused-parameters --ddp-timeout --ddp-backend --local-rank "
     "--dataset-num-proc --overwrite-cache --push-to-hub --hub-model-id --hub-token "
     "--use-liger-kernel --optim-target-modules --torch-compile --use-cache",
     "leave the flag out"},
    {"--packing --sample-packing --pad-to-sequence-len --neat-packing",
     "samples are packed into sequences; --no-pack gives each its own"},
    {"--template --chat-template --dataset-text-field --dataset-dir --type",
     "the model's chat template renders conversations, and the fields of the records say what "
     "they are (docs/train-data.md); leave the flag out"},
    {"--train-on-inputs --completion-only-loss --assistant-only-loss --mask-history "
     "--train-on-prompt",
     "the fields of the records say which text is learned (docs/train-data.md)"},
    {"--fsdp --fsdp-config --fsdp-transformer-layer-cls-to-wrap --zero-stage",
     "--zero 1, 2 or 3 divides optimizer state, gradients and weights among replicas; 3 is what "
     "FSDP does"},
    {"--nproc-per-node --num-processes --nnodes --num-machines --node-rank --machine-rank "
     "--master-addr --master-port --main-process-ip --main-process-port --use-deepspeed",
     "--local N starts N ranks on this host; --hosts or --cluster names other hosts"},
    {"--metric-for-best-model --greater-is-better",
     "--keep-best keeps the checkpoint with the lowest loss over --test-split; leave the flag out"},
    {"--validation-file --eval-file --eval-dataset --val-file",
     "--data FOLDER takes a folder whose file names tell training from test records, and "
     "--test-split holds out a share of the records"},
    {"--attn-implementation --flash-attn --flash-attention --use-flash-attn --xformers-attention",
     "attention is always fused; leave the flag out"},
    {"--trust-remote-code", "Weft runs no code of a model; leave the flag out"},
    {"--per-device-eval-batch-size --eval-batch-size --eval-accumulation-steps",
     "evaluation uses --micro-batch; leave the flag out"},
    {"--global-batch-size --train-batch-size",
     "the batch is --micro-batch x --grad-accum x replicas"}};

// Former flags of 'weft net', 'weft hosts' and 'weft plan'.
constexpr Advice kRemovedFlags[] = {
    {"--plot", "gnuplot draws the printed table (docs/fabric.md)"},
    {"--measure", "'weft net lat --cluster NAME' and 'weft net bw' measure the links"},
    {"--within",
     "--train --machines NAMES --sequences N predicts the time on machines that you name"}};

constexpr OtherCommand kCommands[] = {
    {"chat cli generate complete", "run", ""},
    {"server api start launch", "serve", ""},
    {"ls tags", "list", ""},
    {"download install fetch", "pull", ""},
    {"info", "show", ""},
    {"delete remove uninstall", "rm", ""},
    {"rpc-server", "worker", ""},
    {"benchmark", "bench", ""},
    {"collect-env", "doctor", ""},
    {"finetune fine-tune sft", "train", ""},
    {"trace", "",
     "--trace FILE, of the command itself, writes a timeline: weft run ... --trace FILE"},
    {"bench-serve", "", "'vllm bench serve' and guidellm put a load on a server (docs/serve.md)"},
    {"train-plot", "", "TensorBoard and gnuplot draw the logs in --output-dir (docs/train.md)"},
    {"ps status", "",
     "no service holds models in the background. 'weft hosts' shows the hosts of a cluster, and "
     "GET /api/ps of a 'weft serve' its model"},
    {"stop", "", "Ctrl-C or SIGTERM ends the 'weft serve' of the model"},
    {"create", "", "Weft runs files as they are: weft run FILE. 'weft quantize' changes the type"},
    {"push", "", "Weft fetches from the Hub only: 'hf upload' sends a model there"},
    {"cp", "", "'weft serve MODEL --name NAME' gives a model another name"},
    {"login logout signin signout whoami", "",
     "Weft has no accounts. For a gated model put a token of the Hub into HF_TOKEN, or run "
     "'hf auth login'"},
    {"logs", "", "'weft serve' logs to its standard error; under systemd, 'journalctl' shows that"},
    {"embed", "", "'weft serve MODEL --embeddings' answers /v1/embeddings"},
    {"convert convert_hf_to_gguf imatrix gguf-split", "",
     "Weft runs Hugging Face folders and split GGUF files as they are; 'weft quantize IN OUT TYPE' "
     "writes a GGUF file"},
    {"update upgrade", "", "install the new version over the old one (docs/install.md)"},
    {"search", "", "'weft list --names' lists short names; the Hub's page searches its models"}};

}  // namespace

std::span<const Synonym> Synonyms() {
    return kSynonyms;
}

std::span<const ValueSynonym> ValueSynonyms() {
    return kValueSynonyms;
}

std::span<const Advice> AdvicesOf(std::string_view command) {
    if (command == "weft train") return kTrainingAdvices;
    if (command.starts_with("weft net ") || command == "weft hosts list" ||
        command == "weft plan" || command == "weft train estimate") {
        return kRemovedFlags;
    }
    return IsInference(command) ? std::span<const Advice>(kAdvices) : std::span<const Advice>();
}

std::span<const OtherCommand> OtherCommands() {
    return kCommands;
}

bool IsInference(std::string_view command) {
    return Lists("run serve bench", command.substr(command.find(' ') + 1));
}

bool Lists(std::string_view names, std::string_view name) {
    for (size_t at = 0; at < names.size();) {
        const size_t end = std::min(names.find(' ', at), names.size());
        if (names.substr(at, end - at) == name) return true;
        at = end + 1;
    }
    return false;
}

}  // namespace weft::cli
