"""Test the demo's replay of public weather data, with data sets of the same format."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mosq.cli.pipeline_demo import PIPELINE, demo
from mosq.pipeline import MosqPipelineError, settings, weather
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import verify
from tests.harness.broker import Broker
from tests.pipeline.batches import Batches
from tests.streams.journalled import keeping

DATA = {
    weather.DAILY: "date,precipitation,temp_max,temp_min,wind,weather\n2012/01/01,1.5,12.0,4.0,4.7,rain\n2012/01/02,0.0,10.0,2.0,3,sun\n2013/01/01,2.5,8,0,1,rain\n2012/07/01,0,30,20,1,sun\n",
    "seattle-temps.csv": "date,temp\n2010/01/01 00:00,39.4\n2010/01/01 01:00,39.2\n",
    "sf-temps.csv": "temp,date\n47.8,2010/01/01 00:00:00\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages" / weather.PACKAGE
    (folder / "_data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('it needs pandas')\n")
    for name, text in DATA.items():
        (folder / "_data" / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_each_measurement_is_replayed_once(package: Path, tmp_path: Path) -> None:
    with Broker(keeping("stream telemetry weather/# shards 2")) as broker:
        replay = weather.Weather("127.0.0.1", broker.port, 3600)
        replay.start()
        replay.end()        # it sends the rest at once
        assert replay.sent == 7 and broker.stop() == 0
        text = PIPELINE.replace("{silver}", weather.SILVER).replace("{master}", "local[1]")
        (tmp_path / "pipeline.toml").write_text(text.replace("broker/mosquitto.db.store/streams", str(broker.dir / "mosquitto.db.store/streams")))
        found = settings.load(tmp_path / "pipeline.toml")
        Batches(found).all()
        assert verify.verify(found).adds_up
    duck = Duck(found)
    assert duck.query(weather.QUESTION).to_pylist() == [
        {"month": 1, "celsius": 6.0, "rain_mm": 2.0, "sunny_days": 1}, {"month": 7, "celsius": 25.0, "rain_mm": 0.0, "sunny_days": 1}]
    # gold has the newest measurement of each city
    last = duck.query("SELECT client_id, number FROM last_values WHERE field = 'fahrenheit' ORDER BY client_id").to_pylist()
    assert [tuple(row.values()) for row in last] == [("station-san-francisco", 47.8), ("station-seattle", 39.2)]
    assert duck.query("SELECT silver, field, max(max) AS most FROM telemetry GROUP BY ALL ORDER BY ALL").to_pylist() == [
        {"silver": "daily", "field": field, "most": most} for field, most in (("precipitation", 2.5), ("temp_max", 30.0), ("temp_min", 20.0))
    ] + [{"silver": "hourly", "field": "fahrenheit", "most": 47.8}]
    assert duck.query("SELECT count(*) AS n FROM quarantine").to_pylist() == [{"n": 0}]
    duck.close()


def test_each_series_takes_the_whole_time(package: Path) -> None:
    """The hourly series are of 2010 and the daily one is of later years: in the order of their time, that one would come in the last moment."""
    sent = weather.paced(weather.messages())
    assert sorted(part for part, topic, _ in sent if topic == "weather/seattle/daily") == [0, 1 / 4, 1 / 2, 3 / 4]
    assert [part for part, topic, _ in sent if topic == "weather/seattle/hourly"] == [0, 1 / 2]
    assert sent == sorted(sent, key=lambda one: one[0])


def test_a_missing_or_changed_package_is_reported(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "_data" / weather.DAILY).write_text("day\n1\n")
    with pytest.raises(MosqPipelineError, match=r"another version of vega_datasets than is expected \('date'\)"):
        weather.messages()
    monkeypatch.setattr(weather, "PACKAGE", "mosq_no_such_package")
    said = CliRunner().invoke(demo, ["--data", "weather", "--dir", str(tmp_path / "demo")], standalone_mode=False)
    assert said.return_value == 1 and "pip install --no-deps vega_datasets" in said.output and not (tmp_path / "demo").exists()
