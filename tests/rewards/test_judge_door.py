"""The one test that goes through litellm (its import costs eight CPU-seconds), to a judge that is a local server."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.doors.judge import judge
from pipelines.errors import JudgeUnavailableError
from pipelines.rewards.score import score
from pipelines.schemas import JUDGEMENTS
from tests.conftest import make_workspace
from tests.judge_double import judge_double, score_by
from tests.sealed import Logged, seal_groups


def test_any_openai_compatible_url_is_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_JUDGE_KEY", "sk-judge")
    with judge_double(score_by(lambda text: 0.75 if "good" in text else 0.25)) as double:
        config = f'[judge]\nmodel = "openai/judge-1"\nbase_url = "{double.url}"\nmax_reply_tokens = 321\n'
        workspace = make_workspace(tmp_path, config)
        seal_groups(workspace, {"t": [Logged("good", 1.0), Logged("bad", 0.0)]})
        report = score(workspace, "2026-11-20")
        assert (report.judged, report.judge_requests, report.agreement) == (1, 1, 1.0)
        (sent,) = double.requests
        assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("judge-1", 321, 0.0)
        assert sent["response_format"]["type"] == "json_schema"
        assert sent["response_format"]["json_schema"]["schema"]["required"] == ["scores"]
        (row,) = workspace.lake.read(JUDGEMENTS.name).to_pylist()
        assert (row["num_prompt_tokens"], row["num_reply_tokens"], row["cost_usd"]) == (11, 7, None)
    with judge(workspace) as ask, pytest.raises(JudgeUnavailableError) as caught:
        ask([{"role": "user", "content": "anybody there?"}], {"type": "object"})
    assert "\n" not in str(caught.value)
