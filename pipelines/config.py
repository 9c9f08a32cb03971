"""nightshift.toml: every setting, under each its meaning and what None means.

Read in this order, the later wins: defaults here, the file, NIGHTSHIFT_* variables (`NIGHTSHIFT_JUDGE__MODEL`).
Secrets never stand in the file: keys come from the environment or from the key file.
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
import zoneinfo
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from pipelines.errors import ConfigError

CONFIG_FILE = "nightshift.toml"
_ENTRY = re.compile(r"[^:$]+\.py:[^\W\d]\w*")
"""`file.py:function`."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeConfig(_Section):
    """Where the tables lie."""

    root: str = "lake"
    """Folder relative to the workspace, or an object-store URI (s3://, gs://, az://)."""
    durable: bool = True
    """Bring every commit to the disk before it counts (local lakes); false: a power cut may take what was just taken in."""
    first_day: datetime.date = datetime.date(2026, 1, 1)
    """First daily partition. Older days still land; they have no partition in the Dagster UI."""


def _rule(value: str | None) -> str | None:
    """A rule that names tasks or runs; ValueError where it is neither a JSONPath nor a Python entry."""
    if value is None:
        return None
    if value.startswith("$"):
        from pipelines.landing.naming import checked_path

        checked_path(value)
    elif not _ENTRY.fullmatch(value):
        raise ValueError(f"{value!r} is neither a JSONPath, which begins with $, nor `file.py:function`")
    return value


class SourceConfig(_Section):
    """One place where a harness writes its logs."""

    path: str
    """Folder or file, relative to the workspace."""
    glob: str = "**/*"
    """Which files of a folder; ignored for a file."""
    format: str | None = None
    """Name from `nightshift formats`; None: recognised by content, file by file."""
    harness: str | None = None
    """Scope of the task ids; None: what the log says, else the format's name."""
    policies: dict[str, str] = Field(default_factory=dict)
    """Logged model name -> `<policy>@<version>`, for logs of our own policy that name only the served model."""
    task: str | None = None
    """Names the tasks of these logs, as `groups.task` does, and goes before that; None: that alone."""
    outcome_range: tuple[float, float] | None = None
    """Worst and best outcome that the log writes, e.g. [-1, 1]; None: what the format declares, mostly [0, 1]. An outcome
    outside its range is kept as logged and counts as none."""

    _task_is_a_rule = pydantic.field_validator("task")(_rule)

    @pydantic.field_validator("outcome_range")
    @classmethod
    def _is_a_range(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] < value[1]:
            raise ValueError("the worst outcome must be below the best")
        return value


class LandingConfig(_Section):
    """How logs are taken in."""

    workers: int | None = Field(default=None, ge=1)
    """Processes that cut, redact and make rows, among them the one that commits; each other one takes about 150 MB, and is
    started only where 32 MB and more of logs are read at once, for those of lines (JSONL). None: as many as there are cores
    that this process may use, 5 at most. 1: all is done in one process. It changes nothing of what is stored."""
    at_rest_seconds: float = Field(default=600.0, ge=0)
    """A file that is one document (JSON, YAML, an archive) and whose end is missing waits, as a last line without its end
    does, until it was not written to for so long; then it is quarantined as it is. 0: at once."""


class RedactionConfig(_Section):
    """What is replaced before anything is stored. Changing it moves no id; what is stored already changes with a replay."""

    off: tuple[str, ...] = ()
    """Names of rules that are switched off, e.g. ["email"]; `pipelines/landing/redaction_rules.toml` describes them all."""
    allow: tuple[str, ...] = ()
    """What looks like a secret and is none: texts, or RE2 patterns for the whole of it between slashes ("/.*@example[.]com/")."""
    rules: str | None = None
    """File with rules of your own, relative to the workspace, in the shape of redaction_rules.toml; a rule that has the name
    of a stock one replaces it. None: the stock rules alone."""


class GroupsConfig(_Section):
    """How trajectories become groups."""

    window_days: int = Field(default=7, ge=1)
    """Length of the tumbling windows (aligned to 1970-01-01)."""
    size: int = Field(default=8, ge=2)
    """A group with so many members is full and is sealed at once."""
    min_judged: int = Field(default=4, ge=2)
    """Fewest members of a group that a judge alone orders, and that a night seals where nothing tells them apart yet; where
    verdicts differ, two are enough. Fewer wait for more until their window is over."""
    max_policy_lag: int = Field(default=4, ge=0)
    """How many trained checkpoints may lie between the sampling policy and the parent of tonight's run."""
    max_age_days: int | None = Field(default=90, ge=1)
    """How many days before the night an attempt of our own policy may have been logged to be trained on; None: any number."""
    truncated: Literal["masked", "scored"] = "masked"
    """What becomes of attempts whose last answer was cut off at the limit of tokens. masked: they are no siblings and train
    nothing, since nobody knows how they would have ended. scored: for short answers, where not coming to an end is the failure."""
    context: Literal["strict", "task_id"] = "strict"
    """strict: same system prompt, tools and snapshot (I4); task_id: the harness's task id alone decides."""
    task: str | None = None
    """Names the task of an attempt whose log has no task id: a JSONPath (`$.metadata.ticket`) into its records as they are
    stored, of which the first text or number counts, or a Python entry (`file.py:function`, relative to the workspace) that is
    called with (turns, values) and answers a text or None. None, or where it finds nothing: the first request is the task."""
    volatile: tuple[str, ...] = ()
    """What differs in requests and system prompts that are the same: `times`, `uuids`, `paths`, `hex`, `numbers`, or RE2
    patterns of your own between slashes ("/Case #[0-9]+/"). Empty: every letter counts."""
    run: str | None = None
    """Names the run of an attempt, like `task`: attempts of different runs are never siblings. None: runs do not matter."""

    _are_rules = pydantic.field_validator("task", "run")(_rule)

    @pydantic.field_validator("volatile")
    @classmethod
    def _are_masks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            from pipelines.landing.masks import pattern_of

            for name in value:
                pattern_of(name)
        return value

    near_threshold: float | None = Field(default=0.8, ge=0.5, le=1)
    """Tasks whose requests are at least so similar (Jaccard, of their shingles) are near-copies of each other. A task that is
    one of a held-out or audit task does not train; of those that are ones of each other a night takes `cap_per_cluster` groups.
    None: nothing is compared, and each task is a cluster of its own."""
    near_permutations: int = Field(default=128, ge=16, le=1024)
    """Of the signature that stands for a request, one byte each; more estimate better. Signatures that were made under another
    value are not compared: after a change of this one or the next, `nightshift replay --all` makes them anew."""
    near_words: int = Field(default=5, ge=1, le=32)
    """Words in a shingle. With k of them, one changed word of n leaves a similarity of (n - k) / (n + k)."""
    near_min_words: int = Field(default=12, ge=1)
    """Requests of fewer words are near-copies of nothing: what opens a conversation ("Hello, I need help with an order"), or
    one order for many repositories ("Make the tests pass"), does not say what the task is."""
    cap_per_cluster: int | None = Field(default=8, ge=1)
    """At most so many groups of one task and its near-copies go into a night's batch; the others wait for later nights. So no
    single template floods a night. None: no cap."""
    look_at: Literal["changed", "all"] = "changed"
    """changed: a night reads the windows that are not over yet, and those in which something changed or waits. all: every window
    of the lake, every night, which takes longer and gives the same groups; to be asked for where that is in doubt."""
    wanted_days: int | None = Field(default=28, ge=1)
    """`nightshift groups wanted` lists tasks that production asked in so many days before its newest attempt; None: in all time."""
    top_up: int = Field(default=0, ge=0)
    """Rollouts that a night makes, before anything else, of the tasks that the night before wanted (`nightshift groups wanted`), with
    the champion through the harness. 0: none. It is off until you say so: it costs tokens every night, and your harness runs
    what production once asked again, with whatever its tools do. 64 make about 16 groups."""


class TopUpConfig(_Section):
    """How wanted tasks are run again; switched on by [groups] top_up."""

    attempts: int = Field(default=4, ge=2)
    """Attempts that a task is brought up to, those that wait for siblings included; at most groups.size."""
    max_tokens: int | None = Field(default=500_000, ge=1)
    """Tokens of prompts and answers a night; no rollout starts that is not expected to fit. None: no bound."""
    max_minutes: float | None = Field(default=30.0, gt=0)
    """After so many minutes of a night no further rollout starts; those in flight go on to their end. None: no bound."""
    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature to begin with; None: policy.temperature. It rises while more than half of the last nights' groups with
    top-ups had no spread, and comes back while less than a quarter had none."""
    max_temperature: float = Field(default=1.3, gt=0)
    """How far it rises. Log-probabilities are those of temperature 1, so the further it rises the less exact is what is learned."""
    tasks: str | None = None
    """JSONL file of production tasks as your harness takes them ({task_id, …}); what it holds goes before the log. None, or a
    task that it does not hold: the harness gets {task_id, task_key, messages, tools} as they were logged."""


class VerifierConfig(_Section):
    """One verifier; several are combined by the minimum."""

    name: str
    kind: Literal["logged_outcome", "python"]
    """logged_outcome: the outcome that the log carries. python: `entry` is called with (task_id, turns) and answers with a
    float in [0, 1], or None where it cannot tell."""
    entry: str | None = None
    """`file.py:function`, relative to the workspace, for kind python; None otherwise."""


class RewardsConfig(_Section):
    """How verdicts and judge become one reward."""

    rule: Literal["tests_first", "tests_only", "judge_only"] = "tests_first"
    """judge_only ignores verifiers; it marks the checkpoint, which then cannot promote itself."""
    pass_at: float = Field(default=1.0, gt=0, le=1)
    """verifier_score at or above this passes."""
    judge_weight: float = Field(default=0.1, ge=0, le=0.1)
    """Share of the smallest gap between verifier scores that the judge's order may take."""
    judge_only_weight: float = Field(default=0.25, ge=0, le=1)
    """Multiplies the advantages of groups that a calibrated judge alone tells apart."""
    verifiers: tuple[VerifierConfig, ...] = (VerifierConfig(name="logged_outcome", kind="logged_outcome"),)


class JudgeConfig(_Section):
    """RULER's judge."""

    model: str | None = None
    """Any LiteLLM model (`openai/gpt-5`, `anthropic/…`); None: the embedded policy judges, which is near chance and said so."""
    base_url: str | None = None
    """OpenAI-compatible endpoint; None: the provider's own."""
    api_key_env: str = "NIGHTSHIFT_JUDGE_KEY"
    """Variable that holds the key; unset is fine where the endpoint asks for none."""
    rubric: str = "default"
    """Name of the rubric in force, `rubrics/<name>.md`."""
    groups_per_night: int | None = Field(default=None, ge=0)
    """At most so many groups are judged a night; None: all that can be compared, but 2 where the embedded policy judges. 0: none."""
    temperature: float = Field(default=0.0, ge=0)
    max_reply_tokens: int = Field(default=2000, ge=16)
    max_attempts: int = Field(default=3, ge=1)
    """Requests per group before it is left without a score."""
    timeout_seconds: float = Field(default=120.0, gt=0)
    explanation_chars: int = Field(default=400, ge=1)
    """Longest explanation per trajectory that the judge is asked for."""


class PolicyConfig(_Section):
    """The model that learns."""

    name: str = "nightshift-agent"
    """Registered model; versions are `<name>@<version>`, `<name>@0` is the base model without an adapter."""
    base_model: str = "embedded"
    """`embedded` (SmolLM2-135M-Instruct from its package) or a folder in the transformers layout with safetensors."""
    base_url: str | None = None
    """OpenAI-compatible server with runtime adapters (vLLM); None: the embedded server is started when needed."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of production and evaluation rollouts."""


class HarnessConfig(_Section):
    """The user's agent, which nightshift calls and never owns."""

    name: str = "harness"
    """Scope of its task ids."""
    entry: str | None = None
    """`file.py:function`, `async def rollout(task, client)`; None: no harness, nights end in `hold: no_harness`."""
    concurrency: int = Field(default=64, ge=1)
    timeout_seconds: float = Field(default=120.0, gt=0)
    """Per rollout; running over it is a harness fault, not a failed attempt."""


class EvaluationConfig(_Section):
    """The held-out evaluation and the gate."""

    held_out: str | None = None
    """JSONL file of tasks ({task_id, …}) that are never trained on; None: none given."""
    audit: str | None = None
    """Like held_out, read by no gate and no monitor."""
    held_out_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the logged tasks that is drawn as held-out at first sight."""
    audit_share: float = Field(default=0.0, ge=0, lt=1)
    attempts: int = Field(default=2, ge=1)
    """Sampled answers per held-out task."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """One-sided: promote where the lower bound of the paired difference is above 0."""
    min_tasks: int = Field(default=100, ge=2)
    """Fewer held-out tasks decide nothing: `hold: too_few_tasks`."""
    bootstrap_draws: int = Field(default=10_000, ge=1000)


class TrainingConfig(_Section):
    """The trainer's run, written into run.toml as it stands."""

    lanes: tuple[Literal["grpo"], ...] = ("grpo",)
    """Lanes that are frozen into batches and trained."""
    start: Literal["champion", "latest"] = "champion"
    backend: Literal["auto", "peft"] = "auto"
    loss: Literal["grpo"] = "grpo"
    learning_rate: float = Field(default=1e-5, gt=0)
    learning_rate_decay: Literal["none", "linear"] = "linear"
    """linear: the steps shrink towards 0 over the run, so that its end does not hang on what the last few groups said."""
    epochs: int = Field(default=1, ge=1)
    groups_per_step: int = Field(default=4, ge=1)
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.2, gt=0)
    dual_clip: float | None = Field(default=3.0, gt=1)
    """Bound on the loss of negative advantages; None: off."""
    max_clip_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    """No further epoch begins after one in which a larger share of the sampled tokens was clipped: the policy has moved away
    from the one that made the log, and going on fits the log instead of learning from it. None: all epochs are run."""
    loss_mean: Literal["token", "answer"] = "token"
    """token: each sampled token counts the same, so that a wrong token costs as much in a long answer as in a short one
    (DAPO). answer: each answer counts the same (GRPO as first published); for short answers, where failures that ramble on
    would outweigh the passes by their length alone."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    lora_rank: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)
    seed: int = 0
    shuffle_advantages: bool = False
    """A control, never for production: advantages are shuffled within their group, which must teach nothing."""


class RegistryConfig(_Section):
    """MLflow."""

    uri: str | None = None
    """Tracking and registry URI; None: sqlite in the workspace."""


class ScheduleConfig(_Section):
    """The nightly tick."""

    enabled: bool = False
    cron: str = "0 2 * * *"
    """Minute, hour, day of month, month, day of week."""
    timezone: str = "UTC"
    """Name of the tz database, such as `Europe/Berlin`."""

    @pydantic.field_validator("timezone")
    @classmethod
    def _known_timezone(cls, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            raise ValueError(f"{name!r} is no time zone; name one like UTC or Europe/Berlin") from None
        return name


class Config(BaseSettings):
    """All of nightshift.toml."""

    model_config = SettingsConfigDict(env_prefix="NIGHTSHIFT_", env_nested_delimiter="__", extra="forbid", frozen=True)

    lake: LakeConfig = LakeConfig()
    sources: tuple[SourceConfig, ...] = ()
    landing: LandingConfig = LandingConfig()
    redaction: RedactionConfig = RedactionConfig()
    groups: GroupsConfig = GroupsConfig()
    top_up: TopUpConfig = TopUpConfig()
    rewards: RewardsConfig = RewardsConfig()
    judge: JudgeConfig = JudgeConfig()
    policy: PolicyConfig = PolicyConfig()
    harness: HarnessConfig = HarnessConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    training: TrainingConfig = TrainingConfig()
    registry: RegistryConfig = RegistryConfig()
    schedule: ScheduleConfig = ScheduleConfig()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content arrives as init arguments."""
        return env_settings, init_settings

    @classmethod
    def read(cls, folder: Path) -> Config:
        """Read a workspace's configuration; ConfigError names the setting that does not hold."""
        path = folder / CONFIG_FILE
        try:
            content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{folder} holds no {CONFIG_FILE}: make a workspace with `nightshift init {folder}`") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise ConfigError(f"{path} cannot be read: {problem}") from None
        try:
            return cls(**content)
        except pydantic.ValidationError as problem:
            first = problem.errors()[0]
            parts = [str(part) for part in first["loc"]]
            where, variable = ".".join(parts), "NIGHTSHIFT_" + "__".join(parts).upper()
            said = (
                "no such setting; take it out"
                if first["type"] == "extra_forbidden"
                else first["msg"].removeprefix("Value error, ")
            )
            source = f"{variable} in the environment" if variable in os.environ else str(path)
            raise ConfigError(f"{source}: {where}: {said}") from None
        except SettingsError:  # a variable that holds a whole section is read as JSON
            sections = [name for name in (f"NIGHTSHIFT_{field.upper()}" for field in cls.model_fields) if name in os.environ]
            raise ConfigError(f"{' or '.join(sections)} in the environment is no JSON; mend or unset it") from None
